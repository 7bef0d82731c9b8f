//! Why `--init` wrote nothing.

use super::files;
use crate::upstream::{bundled::Fault, client::ClientError, probe::ProbeError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Files(#[from] files::Error),
    /// The bundled engine could not serve this.
    #[error(transparent)]
    Engine(#[from] Fault),
    #[error("--context: {asked}; at most {most} is allowed, {reason}")]
    Context {
        asked: u64,
        most: u64,
        reason: String,
    },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("nothing written: {0}; with --model and --context it need not be asked")]
    Upstream(#[from] ProbeError),
    #[error(
        "nothing written: the model server does not say which model it serves; --model names it"
    )]
    Nameless,
}
