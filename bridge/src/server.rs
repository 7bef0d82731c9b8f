//! The HTTP server: takes connections, bounds them, and goes down in order.
//!
//! warp's filters route; the loop is ours, because warp's own sets no header timeout, waits for ever on an open stream
//! when stopping, and takes any number of connections. A connection speaks HTTP/1.1, as Codex does to plain http.

use std::{
    future::Future, io, net::SocketAddr, num::NonZero, pin::pin, sync::Arc, thread, time::Instant,
};

use tokio::{net::TcpListener, sync::oneshot};
use tracing::Level;
use url::Url;

use self::stop::StopSignals;
use crate::{
    config::{Config, UpstreamConfig},
    mcp::Relay,
    metrics::Metrics,
    telemetry,
    upstream::{
        Upstream,
        bundled::{Bundled, Fault, ModelInfo},
        client::{self, ClientError},
        probe::{Probe, ProbeError},
    },
};

pub mod body;
mod connection;
mod context;
mod cors;
mod drain;
mod error;
mod front;
mod guard;
mod health;
mod lane;
mod linger;
mod log;
mod mcp;
mod models;
mod notify;
mod ready;
mod responses;
mod routes;
mod stop;

pub use self::{
    context::RequestContext,
    drain::Drain,
    log::{Changes, Record, RequestLog},
};

/// What all requests share.
#[derive(Debug)]
pub struct State {
    pub config: Config,
    /// For requests to the upstream.
    pub client: client::Client,
    pub metrics: Metrics,
    pub upstream: Upstream,
    pub draining: Drain,
    /// `None` for the bundled engine, which needs no asking.
    pub probe: Option<Probe>,
    pub mcp: Option<Relay>,
    unknown_fields: responses::UnknownFields,
    started: Instant,
    /// The same, in seconds since 1970.
    started_unix: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {host}:{port}: {source}")]
    Listen {
        host: String,
        port: u16,
        source: io::Error,
    },
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The model was not there or could not be used, or the engine failed later.
    #[error(transparent)]
    Engine(#[from] Fault),
    #[error("cannot watch for stop signals: {0}")]
    Signals(io::Error),
}

/// A bound server that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
    threads: NonZero<usize>,
}

/// More threads than a crowd of connections has a use for, beside an engine that computes.
const MOST_THREADS: NonZero<usize> = NonZero::new(4).unwrap();

/// Binds, says so, and serves until stopped by SIGTERM or SIGINT, or until the bundled engine fails. A second signal
/// ends it at once.
///
/// # Errors
/// Whatever keeps it from serving, and the end of the engine.
pub async fn run(config: Config) -> Result<(), StartError> {
    let manager = std::env::var_os("NOTIFY_SOCKET");
    let mut signals = StopSignals::new().map_err(StartError::Signals)?;
    let threads = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let server = Server::bind(config)
        .await?
        .on_threads(threads.min(MOST_THREADS));
    telemetry::tell(Level::INFO, &server.ready_line());
    notify::tell(manager.as_deref(), notify::READY);
    // Beside serving: who is slow to answer delays nothing.
    tokio::spawn(ask_upstream(Arc::clone(&server.state)));

    let grace = server.state.config.shutdown_grace;
    let engine = server.engine();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = pin!(server.serve(async { stopped.await.unwrap_or_default() }));
    let fault = tokio::select! {
        () = &mut serving => None,
        () = signals.next() => None,
        fault = run_engine(engine.as_ref()) => Some(fault),
    };
    notify::tell(manager.as_deref(), notify::STOPPING);
    // A fault is this function's error, and so the program's last words.
    if fault.is_none() {
        tracing::info!(
            "stopping; open answers may go on for {grace:?}, a second signal ends them at once"
        );
    }
    drop(stop);
    let in_order = async {
        serving.await;
        if let Some(engine) = engine {
            engine.shutdown().await;
        }
    };
    tokio::select! {
        () = in_order => {}
        () = signals.next() => tracing::warn!("stopping at once"),
    }
    fault.map_or(Ok(()), |fault| Err(fault.into()))
}

/// Says once that the model server is not there, before the first request finds out.
async fn ask_upstream(state: Arc<State>) {
    let (Some(probe), UpstreamConfig::Http(upstream)) = (&state.probe, &state.config.upstream)
    else {
        return;
    };
    match probe.outcome().await {
        Ok(detected) => {
            if let Some(problem) = detected.hides_its_window() {
                tracing::warn!("{problem}");
            }
        }
        // It will be there soon, and requests wait for it.
        Err(error @ ProbeError::Loading { .. }) => tracing::info!("{error}"),
        Err(error) => match upstream.wait_for_ready {
            Some(wait) => tracing::warn!("{error}; a request waits {wait:?} for it"),
            None => tracing::warn!("{error}"),
        },
    }
}

/// Returns when the engine fails; without one, never.
async fn run_engine(engine: Option<&Bundled>) -> Fault {
    match engine {
        Some(engine) => {
            let began = Instant::now();
            let ready = |model: &ModelInfo| {
                for (level, line) in ready::engine_lines(engine.name(), model, began.elapsed()) {
                    telemetry::tell(level, &line);
                }
            };
            engine.run(ready).await
        }
        None => std::future::pending().await,
    }
}

impl Server {
    /// # Errors
    /// The address cannot be bound, or no HTTP client can be built.
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let state = Arc::new(State::new(config)?);
        let listen = &state.config.listen;
        let refused = |source| StartError::Listen {
            host: listen.host.clone(),
            port: listen.port,
            source,
        };
        let host = listen.host.trim_matches(['[', ']']);
        let listener = TcpListener::bind((host, listen.port))
            .await
            .map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self {
            listener,
            address,
            state,
            threads: NonZero::<usize>::MIN,
        })
    }

    /// Serves a crowd of connections on up to so many threads, the caller's among them. One is the default.
    #[must_use]
    pub fn on_threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// The bound address, with the real port.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The bundled engine, which somebody has to run.
    pub fn engine(&self) -> Option<Bundled> {
        match &self.state.upstream {
            Upstream::Bundled(engine) => Some(engine.clone()),
            Upstream::Http(_) => None,
        }
    }

    /// One line for people, and for programs that wait for it.
    pub fn ready_line(&self) -> String {
        ready::line(self.address, &self.state.config)
    }

    /// Serves until `shutdown`, then lets open answers end within the grace.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        connection::serve(self.listener, self.state, self.threads, shutdown).await;
    }
}

impl State {
    fn new(config: Config) -> Result<Self, StartError> {
        let (client, probe) = match &config.upstream {
            UpstreamConfig::Http(upstream) => {
                let client = client::build(&upstream.base_url, upstream.connect_timeout)?;
                let probe = Probe::new(client.clone(), upstream.clone());
                (client, Some(probe))
            }
            UpstreamConfig::Bundled(_) => (client::plain()?, None),
        };
        let most = config.limits.max_response_bytes;
        let upstream = Upstream::new(&config.upstream, client.clone(), most);
        let metrics = match &upstream {
            Upstream::Bundled(engine) => Metrics::with_engine(engine.clone()),
            Upstream::Http(_) => Metrics::new(),
        };
        Ok(Self {
            upstream,
            mcp: config.mcp_proxy.clone().map(Relay::new).transpose()?,
            client,
            metrics,
            draining: Drain::new(),
            unknown_fields: responses::UnknownFields::default(),
            probe,
            config,
            started: Instant::now(),
            started_unix: responses::now_unix(),
        })
    }
}

/// As the ready line and `/health` show it.
fn upstream_name(upstream: &UpstreamConfig) -> &str {
    match upstream {
        UpstreamConfig::Http(upstream) => without_slash(&upstream.base_url),
        UpstreamConfig::Bundled(_) => "bundled",
    }
}

/// A base URL as users write it.
fn without_slash(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}
