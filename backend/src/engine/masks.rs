//! The threads that ask grammars what may come next, beside the forward pass. A constraint travels there in its box and comes back with the answer, so
//! nobody ever waits for a lock on it.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use super::constraint::{Constraint, ConstraintError, Next};
use crate::device::TokenMask;

#[derive(Debug)]
pub(super) struct Job {
    /// The sequence.
    pub(super) id: u64,
    pub(super) constraint: Box<dyn Constraint>,
    /// Tokens that may be guessed next.
    pub(super) draft: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) next: Next,
    /// Masks after each token of the draft; as many as the grammar would take.
    pub(super) along: Vec<Option<TokenMask>>,
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) id: u64,
    pub(super) result: Result<(Box<dyn Constraint>, Answer), ConstraintError>,
}

/// A fixed number of threads. At most `most` jobs are with them: one for each running sequence, and some whose sequence was cancelled meanwhile.
#[derive(Debug)]
pub(super) struct MaskPool {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
    /// Jobs given to the threads and not taken back.
    out: usize,
    most: usize,
    /// Answers fetched while waiting for a place.
    fetched: Vec<Done>,
}

#[derive(Debug, Default)]
struct Desk {
    trays: Mutex<Trays>,
    job: Condvar,
    answer: Condvar,
}

#[derive(Debug, Default)]
struct Trays {
    jobs: VecDeque<Job>,
    done: Vec<Done>,
    closed: bool,
}

impl Desk {
    fn trays(&self) -> MutexGuard<'_, Trays> {
        self.trays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MaskPool {
    /// Without threads (`threads` is 0, or the system gives none) answers are found on the engine's own.
    pub(super) fn new(threads: usize, most: usize) -> MaskPool {
        let desk = Arc::<Desk>::default();
        let threads = (0..threads).map_while(|index| {
            let desk = desk.clone();
            std::thread::Builder::new()
                .name(format!("masks-{index}"))
                .spawn(move || work(&desk))
                .ok()
        });
        MaskPool {
            threads: threads.collect(),
            desk,
            out: 0,
            most,
            fetched: Vec::new(),
        }
    }

    pub(super) fn give(&mut self, job: Job) {
        if self.threads.is_empty() {
            self.fetched.push(answer(job));
            return;
        }
        while self.out >= self.most {
            let done = self.wait(Duration::MAX);
            self.fetched.extend(done);
        }
        self.out += 1;
        self.desk.trays().jobs.push_back(job);
        self.desk.job.notify_one();
    }

    /// All answers that are ready; waits up to `patience` for at least one if any are due.
    pub(super) fn fetch(&mut self, patience: Duration) -> Vec<Done> {
        let mut done = std::mem::take(&mut self.fetched);
        let patience = if done.is_empty() {
            patience
        } else {
            Duration::ZERO
        };
        done.append(&mut self.wait(patience));
        done
    }

    fn wait(&mut self, patience: Duration) -> Vec<Done> {
        if self.out == 0 {
            return Vec::new();
        }
        let mut trays = self.desk.trays();
        if trays.done.is_empty() && !patience.is_zero() {
            let empty = |trays: &mut Trays| trays.done.is_empty();
            let woken = self.desk.answer.wait_timeout_while(trays, patience, empty);
            trays = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let done = std::mem::take(&mut trays.done);
        self.out -= done.len();
        done
    }
}

impl Drop for MaskPool {
    fn drop(&mut self) {
        let mut trays = self.desk.trays();
        trays.closed = true;
        trays.jobs.clear();
        drop(trays);
        self.desk.job.notify_all();
        for thread in self.threads.drain(..) {
            // A thread catches what its jobs throw.
            let _ = thread.join();
        }
    }
}

fn work(desk: &Desk) {
    loop {
        let trays = desk.trays();
        let idle = |trays: &mut Trays| trays.jobs.is_empty() && !trays.closed;
        let woken = desk.job.wait_while(trays, idle);
        let mut trays = woken.unwrap_or_else(PoisonError::into_inner);
        let Some(job) = trays.jobs.pop_front() else {
            return;
        };
        drop(trays);
        let done = answer(job);
        desk.trays().done.push(done);
        desk.answer.notify_one();
    }
}

fn answer(job: Job) -> Done {
    let Job {
        id,
        mut constraint,
        mut draft,
    } = job;
    // A constraint that panicked is dropped, so its broken state is never seen.
    let asked = catch_unwind(AssertUnwindSafe(move || {
        let next = constraint.next()?;
        let mut along = Vec::new();
        if !draft.is_empty() && matches!(next, Next::Free | Next::Mask(_)) {
            draft.truncate(constraint.would_accept(&draft));
            if !draft.is_empty() {
                along = constraint.masks_along(&draft)?;
            }
        }
        Ok((constraint, Answer { next, along }))
    }));
    let result = asked.unwrap_or_else(|_| Err(ConstraintError("it panicked".to_owned())));
    Done { id, result }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::engine::testing::{Allow, Script};

    #[test]
    fn more_jobs_than_may_be_out_all_come_back_once() {
        for threads in [0, 1, 3] {
            let mut pool = MaskPool::new(threads, 2);
            for id in 0..9 {
                let constraint = Script::boxed(vec![Allow::OneOf(vec![1, 2]), Allow::Any]).unwrap();
                let draft = vec![1, 5, 5];
                pool.give(Job {
                    id,
                    constraint,
                    draft,
                });
            }
            let mut ids = Vec::new();
            while ids.len() < 9 {
                for done in pool.fetch(Duration::MAX) {
                    let (_, answer) = done.result.unwrap();
                    // Two of the draft's tokens fit in; the place after them is the end.
                    assert_eq!(answer.along.len(), 2);
                    ids.push(done.id);
                }
            }
            ids.sort_unstable();
            assert_eq!(ids, (0..9).collect::<Vec<_>>());
            assert_eq!(pool.fetch(Duration::ZERO).len(), 0);
        }
    }
}
