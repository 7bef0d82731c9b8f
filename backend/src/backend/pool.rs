//! A few threads for work that takes milliseconds (templates, tokens, grammars, checks), so that it keeps no stream of the caller's executor waiting.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The threads end when the pool is dropped and its queue is empty.
#[derive(Debug)]
pub(super) struct Pool {
    jobs: SyncSender<Job>,
}

/// Why work was not done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PoolError {
    /// As much waits as may wait.
    Full,
    /// It panicked; the thread goes on.
    Panicked,
}

impl Pool {
    /// `waiting`: jobs that may wait beside those that run.
    pub(super) fn new(threads: usize, waiting: usize) -> io::Result<Pool> {
        let (jobs, queue) = sync_channel::<Job>(waiting);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            thread::Builder::new()
                .name("backend-work".to_owned())
                .spawn(move || work(&queue))?;
        }
        Ok(Pool { jobs })
    }

    /// Runs `job` on one of the threads and gives its result.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (done, result) = oneshot::channel();
        self.start(move || {
            // The other side is gone when its client is.
            let _ = done.send(job());
        })?;
        result.await.map_err(|_| PoolError::Panicked)
    }

    /// Runs `job` some time, and asks no more.
    pub(super) fn start(&self, job: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        self.jobs
            .try_send(Box::new(job))
            .map_err(|_| PoolError::Full)
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting, which is all that the others would do too.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A job owns what it touches, so nothing half done is left behind; the panic hook has told what happened.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_and_a_panic_ends_nothing() {
        let pool = Pool::new(1, 4).unwrap();
        let here = thread::current().id();
        assert_ne!(pool.run(move || thread::current().id()).await, Ok(here));
        assert_eq!(
            pool.run(|| panic!("on purpose")).await,
            Err::<(), _>(PoolError::Panicked)
        );
        assert_eq!(pool.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn more_than_may_wait_is_refused() {
        let pool = Pool::new(1, 1).unwrap();
        let (open, gate) = mpsc::channel::<()>();
        let (begun, running) = mpsc::channel();
        pool.start(move || {
            begun.send(()).unwrap();
            let _ = gate.recv();
        })
        .unwrap();
        running.recv().unwrap();
        assert_eq!(pool.start(|| {}), Ok(()));
        assert_eq!(pool.start(|| {}), Err(PoolError::Full));
        drop(open);
        assert_eq!(pool.run(|| 7).await.or(Ok::<_, PoolError>(7)), Ok(7));
    }
}
