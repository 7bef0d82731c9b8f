//! Closing a connection so that the client gets to read what we said last.
//!
//! When a server closes a socket with unread bytes in it, the kernel sends a reset, and the reset overtakes the answer:
//! a client in the middle of a too-large upload would see a broken pipe instead of its 413. So hyper works on a
//! [`Lent`] socket; when it lets go, the socket comes back here and is read empty for a moment.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    sync::oneshot,
};

const LONGEST: Duration = Duration::from_secs(2);
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// A socket that returns to its owner when dropped.
pub(super) struct Lent {
    stream: Option<TcpStream>,
    back: Option<oneshot::Sender<TcpStream>>,
    unanswered: Arc<AtomicBool>,
}

/// What is known of a [`Lent`] socket, and the way to get it back.
pub(super) struct Loan {
    pub(super) returned: oneshot::Receiver<TcpStream>,
    /// The last bytes that passed were the client's.
    unanswered: Arc<AtomicBool>,
}

pub(super) fn lend(stream: TcpStream) -> (Lent, Loan) {
    let (back, returned) = oneshot::channel();
    let unanswered = Arc::default();
    let lent = Lent {
        stream: Some(stream),
        back: Some(back),
        unanswered: Arc::clone(&unanswered),
    };
    let loan = Loan {
        returned,
        unanswered,
    };
    (lent, loan)
}

impl Loan {
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed)
    }
}

/// Gives the client its last answer.
pub(super) async fn say(mut stream: TcpStream, answer: &[u8]) {
    // Late or broken, the client has had its chance.
    let _ = tokio::time::timeout(LONGEST, stream.write_all(answer)).await;
    close(stream).await;
}

/// Says that nothing more comes, then reads and forgets until the client is done, within bounds.
pub(super) async fn close(mut stream: TcpStream) {
    let drained = async {
        stream.shutdown().await?;
        let mut scratch = vec![0; 16 * 1024];
        let mut left = MOST_BYTES;
        while left > 0 {
            match stream.read(&mut scratch).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        io::Result::Ok(())
    };
    // Late or broken, the client has had its chance.
    let _ = tokio::time::timeout(LONGEST, drained).await;
}

impl Lent {
    fn stream(&mut self) -> io::Result<&mut TcpStream> {
        let lost = || io::ErrorKind::NotConnected.into();
        self.stream.as_mut().ok_or_else(lost)
    }

    fn answered(&self, wrote: &Poll<io::Result<usize>>) {
        if matches!(wrote, Poll::Ready(Ok(count)) if *count > 0) {
            self.unanswered.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.back.take()) {
            // Nobody waits any more when the whole task was aborted; then the socket just closes.
            let _ = back.send(stream);
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(this.stream()?).poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.unanswered.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Lent {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(this.stream()?).poll_write(context, bytes);
        this.answered(&wrote);
        wrote
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().stream()?).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().stream()?).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(this.stream()?).poll_write_vectored(context, slices);
        this.answered(&wrote);
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream
            .as_ref()
            .is_some_and(AsyncWrite::is_write_vectored)
    }
}
