//! The line that says where the bridge can be reached, and from where.

use std::{
    iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use tracing::Level;

use super::upstream_name;
use crate::{config::Config, upstream::bundled::ModelInfo};

pub(super) fn line(address: SocketAddr, config: &Config) -> String {
    let (url, reach) = describe(address, config.listen.api_key.is_some());
    format!(
        "codex-bridge listening on {url} ({reach}), upstream {}",
        upstream_name(&config.upstream)
    )
}

/// What the engine serves, when it does.
pub(super) fn engine_lines(name: &str, model: &ModelInfo, took: Duration) -> Vec<(Level, String)> {
    let served = format!(
        "serving {name} ({}, {} parameters, context {} tokens) on {}; ready after {:.1} s",
        model.format,
        parameters(model.parameters),
        model.context,
        model.device,
        took.as_secs_f32()
    );
    let warnings = model.warnings.iter();
    let warnings = warnings.map(|warning| (Level::WARN, format!("warning: {warning}")));
    iter::once((Level::INFO, served)).chain(warnings).collect()
}

/// `135 M`, `8.0 B`.
fn parameters(count: u64) -> String {
    match count {
        0..1_000_000 => count.to_string(),
        1_000_000..1_000_000_000 => format!("{} M", (count + 500_000) / 1_000_000),
        _ => format!("{:.1} B", count as f64 / 1e9),
    }
}

fn describe(address: SocketAddr, has_key: bool) -> (String, &'static str) {
    let reachable = if address.ip().is_unspecified() {
        SocketAddr::new(
            outward(address.ip()).unwrap_or(address.ip()),
            address.port(),
        )
    } else {
        address
    };
    let reach = match (address.ip().to_canonical().is_loopback(), has_key) {
        (true, _) => "loopback only",
        (false, true) => "from the network, with the key",
        (false, false) => "from the network, WITHOUT A KEY",
    };
    (format!("http://{reachable}"), reach)
}

/// The address other machines see. Connecting a datagram socket sends nothing; it only picks the way out
/// (to addresses set aside for documentation, RFC 5737 and 3849).
fn outward(family: IpAddr) -> Option<IpAddr> {
    let (from, to): (IpAddr, IpAddr) = match family {
        IpAddr::V4(any) => (any.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(any) => (
            any.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ),
    };
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_rounded_as_people_say_them() {
        assert_eq!(parameters(134_515_008), "135 M");
        assert_eq!(parameters(8_030_261_248), "8.0 B");
        assert_eq!(parameters(9000), "9000");
    }

    #[test]
    fn the_line_says_who_can_come_in() {
        let at = |address: &str, key| describe(address.parse().unwrap(), key);
        assert_eq!(
            at("127.0.0.1:10901", false),
            ("http://127.0.0.1:10901".to_owned(), "loopback only")
        );
        assert_eq!(at("[::1]:1", true).0, "http://[::1]:1");
        assert_eq!(at("10.0.0.2:1", true).1, "from the network, with the key");
        let (url, reach) = at("0.0.0.0:10901", false);
        assert!(
            url.starts_with("http://") && url.ends_with(":10901"),
            "{url}"
        );
        assert!(reach.contains("WITHOUT A KEY"));
    }
}
