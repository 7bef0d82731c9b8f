//! One datagram to the service manager (systemd's `sd_notify` protocol), where one listens.

use std::{ffi::OsStr, io, os::unix::net::UnixDatagram};

pub(super) const READY: &str = "READY=1\n";
pub(super) const STOPPING: &str = "STOPPING=1\n";

/// Tells `socket`, the value of `NOTIFY_SOCKET`. A failure is logged and no more: the service runs all the same.
pub(super) fn tell(socket: Option<&OsStr>, state: &str) {
    let Some(socket) = socket.filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(socket, state) {
        tracing::warn!(%error, ?socket, "the service manager was not told {}", state.trim());
    }
}

#[cfg(target_os = "linux")]
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::{ffi::OsStrExt, net::SocketAddr},
    };
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to(state.as_bytes(), socket)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listening_manager_gets_one_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        tell(Some(path.as_os_str()), READY);
        let mut buffer = [0; 32];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\n");
    }

    #[test]
    fn no_manager_is_no_error() {
        tell(None, READY);
        tell(Some(OsStr::new("/nonexistent/notify")), READY);
    }
}
