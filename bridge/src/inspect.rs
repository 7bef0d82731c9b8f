//! `codex-bridge inspect FILE`: what a model holds and the memory it needs, without serving it.

use crate::{
    config::Places,
    pull,
    upstream::bundled::{self, Fault, FaultKind},
};

/// What to tell the user.
///
/// # Errors
/// There is no such model on this machine, or it cannot be used.
pub fn run(model: &str, context: Option<u64>, places: &Places) -> Result<String, Fault> {
    let found = pull::find(model, places).map_err(|error| Fault::from(&error))?;
    let Some(path) = found else {
        let message = match pull::is_path(model) {
            true => format!("{model}: there is no such file or folder"),
            false => {
                format!("{model}: not on this machine; `codex-bridge pull {model}` fetches it")
            }
        };
        return Err(Fault {
            message,
            kind: FaultKind::Missing,
        });
    };
    let context = context.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    Ok(bundled::inspect(&path, context)?.text)
}
