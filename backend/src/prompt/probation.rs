//! A template is first used under supervision. Its fuel bounds nearly all that it can do; what is left (a list that is doubled more than 32 times, which
//! minijinja 3.1 copies without charging for it) shows when the model is loaded, and ends the load instead of filling the machine's memory.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use super::PromptError;

/// Templates take a few milliseconds. A list being copied grows by less than a gigabyte meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs `work` on a thread of its own and waits for it.
///
/// # Errors
/// Those of `work`, and when it takes longer than [`PATIENCE`]. The thread cannot be stopped then: the program must end.
pub(crate) fn on_probation<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PromptError> + Send + 'static,
) -> Result<T, PromptError> {
    within(PATIENCE, work)
}

fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> Result<T, PromptError> + Send + 'static,
) -> Result<T, PromptError> {
    let (send, done) = channel();
    let thread = thread::Builder::new().name("chat-template".to_owned());
    let problem = match thread.spawn(move || drop(send.send(work()))) {
        Err(error) => format!("no thread could be started for it: {error}"),
        Ok(_) => match done.recv_timeout(patience) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => "made its reader panic".to_owned(),
            Err(RecvTimeoutError::Timeout) => {
                format!(
                    "does more work than {} s are enough for",
                    patience.as_secs()
                )
            }
        },
    };
    Err(PromptError::Template(problem))
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
        let (release, wait) = sync_channel::<()>(0);
        let result = within(Duration::ZERO, move || {
            let _ = wait.recv();
            Ok(())
        });
        let problem = "does more work than 0 s are enough for".to_owned();
        assert_eq!(result, Err(PromptError::Template(problem)));
        drop(release);
    }
}
