//! A wire tap between Codex and the bridge: passes every byte on and lets a test wait for what went by.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time,
};

/// Longer than any test of silence.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Tap {
    address: SocketAddr,
    /// Everything that passed so far, both ways, as it came.
    passed: watch::Receiver<Vec<u8>>,
    _tasks: JoinSet<()>,
}

impl Tap {
    /// Listens on loopback and connects each client to `origin` (`http://HOST:PORT`).
    pub async fn before(origin: &str) -> Result<Self> {
        let target = origin
            .strip_prefix("http://")
            .context("an origin starts with http://")?
            .to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("bind a loopback port")?;
        let address = listener.local_addr()?;
        let (writer, passed) = watch::channel(Vec::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, writer));
        Ok(Self {
            address,
            passed,
            _tasks: tasks,
        })
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How often `text` went by.
    pub fn count(&self, text: &str) -> usize {
        count(&self.passed.borrow(), text)
    }

    /// Waits until `text` has gone by `times` times.
    pub async fn wait_for(&self, text: &str, times: usize) -> Result<()> {
        let mut passed = self.passed.clone();
        let seen = time::timeout(
            PATIENCE,
            passed.wait_for(|bytes| count(bytes, text) >= times),
        )
        .await;
        match seen {
            Ok(seen) => seen.map(drop).context("the tap is closed"),
            Err(_) => bail!("{text:?} went by {} times, not {times}", self.count(text)),
        }
    }
}

fn count(bytes: &[u8], text: &str) -> usize {
    String::from_utf8_lossy(bytes).matches(text).count()
}

async fn accept(listener: TcpListener, target: String, passed: watch::Sender<Vec<u8>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (target, passed) = (target.clone(), passed.clone());
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(target).await else {
                return;
            };
            let (client_in, client_out) = client.into_split();
            let (server_in, server_out) = server.into_split();
            tokio::join!(
                copy(client_in, server_out, &passed),
                copy(server_in, client_out, &passed)
            );
        });
    }
}

/// Copies until one side ends, then ends the other.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    passed: &watch::Sender<Vec<u8>>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        passed.send_modify(|bytes| bytes.extend_from_slice(&buffer[..length]));
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
