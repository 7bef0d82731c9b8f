use codex_bridge::{config::*, server};
use std::time::Duration;
fn main() {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().unwrap().parse().unwrap();
    let base: url::Url = args.next().unwrap().parse().unwrap();
    let host = args.next().unwrap_or("127.0.0.1".into());
    let log = Log {
        format: LogFormat::Text,
        filter: "info".into(),
    };
    codex_bridge::telemetry::init(&log).unwrap();
    let config = Config {
        listen: Listen {
            host,
            port,
            api_key: None,
            allowed_hosts: vec![],
            allowed_origins: vec![],
        },
        limits: Limits {
            max_request_body_bytes: 16 << 20,
            max_event_bytes: 8 << 20,
            max_held_bytes: 8 << 20,
            max_response_bytes: 64 << 20,
            max_connections: 1024,
            header_timeout: Duration::from_secs(30),
        },
        upstream: UpstreamConfig::Http(HttpUpstream {
            base_url: base,
            kind: UpstreamKind::Auto,
            api_key: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: None,
            wait_for_ready: None,
        }),
        policy: Policy::default(),
        mcp_proxy: None,
        log,
        shutdown_grace: Duration::from_secs(5),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(server::run(config)).unwrap();
}
