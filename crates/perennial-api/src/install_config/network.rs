//! Parses addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Parses a network whose address has no bits beyond the prefix. The error names what is accepted.
pub(super) fn parse_network(text: &str) -> Result<IpNet, String> {
    const EXPECTED: &str = "must be a network such as 10.0.0.0/16 or fd00::/48";
    let Some((address, length)) = text.split_once('/') else {
        return Err(format!("{EXPECTED}: there is no prefix length"));
    };
    let address: IpAddr = address.parse().map_err(|_| format!("{EXPECTED}: {address:?} is not an IP address"))?;
    let (family, longest) = if address.is_ipv4() { ("IPv4", 32) } else { ("IPv6", 128) };
    let length: u8 = match length.parse() {
        Ok(length) if length <= longest && !text.contains('+') => length,
        _ => return Err(format!("{EXPECTED}: the prefix length of an {family} network is 0 to {longest}")),
    };
    let network = IpNet::new_assert(address, length);
    if network.trunc() != network {
        return Err(format!("has bits set beyond the prefix: the network is {}", network.trunc()));
    }
    Ok(network)
}

/// Parses an address. The error names what is accepted.
pub(super) fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "must be an IP address such as 192.0.2.1 or 2001:db8::1".to_owned())
}

/// Returns the address that is `n` after the first of a network, if the network has it.
pub(super) fn nth_address(network: IpNet, n: u32) -> Option<IpAddr> {
    let address = match network.network() {
        IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits().checked_add(n)?)),
        IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from_bits(first.to_bits().checked_add(n.into())?)),
    };
    network.contains(&address).then_some(address)
}

/// Returns true for a lower-case DNS name.
pub(super) fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        (1..=63).contains(&label.len())
            && label.chars().all(|c| inner(c) || c == '-')
            && label.starts_with(inner)
            && label.ends_with(inner)
    };
    name.len() <= 253 && name.split('.').all(label)
}
