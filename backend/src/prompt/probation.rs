//! A template runs on a thread of its own and is not waited for without end. Its fuel bounds nearly all that it can do; what minijinja 3.1 does not charge
//! for (a list that is doubled more than 32 times is copied, lists of any length are compared) may take all memory or all time. Such a thread cannot be
//! stopped: when the model is loaded it ends the load, and later the engine, before it fills the machine.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use super::PromptError;

/// For all that is done with a template when its model is loaded: a few milliseconds. A list being copied grows by less than a gigabyte meanwhile.
const LOADING: Duration = Duration::from_secs(3);
/// What a request's prompt may take. Fuel ends honest work after a fraction of a second; a machine may be busy with other things.
pub(crate) const RENDERING: Duration = Duration::from_secs(10);
/// A list in a list in a list takes about five units of fuel a level to build and some 300 bytes of stack a level to drop. Only touched pages cost memory.
pub(super) const STACK: usize = 256 << 20;
/// The wait is cut into so many parts, so that a program that was held (a debugger, a suspended machine) counts one of them and not all.
const PARTS: u32 = 20;

/// Runs `work`, the making of a template, on a thread of its own and waits for it.
///
/// # Errors
/// Those of `work`, and when it takes longer than [`LOADING`]. The thread cannot be stopped then: the program must end.
pub(crate) fn on_probation<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PromptError> + Send + 'static,
) -> Result<T, PromptError> {
    within(LOADING, "made its reader panic", work)
}

/// Runs `work` on a thread with a stack for whatever a template can nest, and waits no longer than `patience`. `panicked` says who did if it panics.
///
/// # Errors
/// Those of `work`, and [`PromptError::Endless`]. The thread cannot be stopped then.
pub(super) fn within<T: Send + 'static>(
    patience: Duration,
    panicked: &str,
    work: impl FnOnce() -> Result<T, PromptError> + Send + 'static,
) -> Result<T, PromptError> {
    let (send, done) = channel();
    let thread = thread::Builder::new()
        .name("chat-template".to_owned())
        .stack_size(STACK);
    if let Err(error) = thread.spawn(move || drop(send.send(work()))) {
        let problem = format!("no thread could be started for it: {error}");
        return Err(PromptError::Template(problem));
    }
    match wait(&done, patience) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => Err(PromptError::Template(panicked.to_owned())),
        Err(RecvTimeoutError::Timeout) => Err(PromptError::Endless {
            seconds: patience.as_secs(),
        }),
    }
}

fn wait<T>(done: &Receiver<T>, patience: Duration) -> Result<T, RecvTimeoutError> {
    for _ in 1..PARTS {
        match done.recv_timeout(patience / PARTS) {
            Err(RecvTimeoutError::Timeout) => {}
            settled => return settled,
        }
    }
    done.recv_timeout(patience / PARTS)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn what_ends_gives_its_own_result() {
        assert_eq!(on_probation(|| Ok(1)), Ok(1));
        let own = PromptError::Template("its own".to_owned());
        let result = own.clone();
        assert_eq!(on_probation::<()>(|| Err(result)), Err(own));
        assert_eq!(
            on_probation::<()>(|| panic!("as asked")),
            Err(PromptError::Template("made its reader panic".to_owned()))
        );
    }

    #[test]
    fn what_does_not_end_is_not_waited_for() {
        let (release, held) = sync_channel::<()>(0);
        let result = within(Duration::ZERO, "panicked", move || {
            let _ = held.recv();
            Ok(())
        });
        assert_eq!(result, Err(PromptError::Endless { seconds: 0 }));
        drop(release);
    }
}
