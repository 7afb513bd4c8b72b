//! The names and addresses of the server in its certificate.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::bail;
use perennial_core::spec::Host;

use super::cluster_config::{parse_domain, this_machine};

/// The listen address and the additional names of the server.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// The listen address.
    pub(crate) listen: SocketAddr,
    /// Additional names and addresses from `--tls-san`.
    pub(crate) more: Vec<Host>,
}

impl Addresses {
    /// Returns the names and addresses for the server's certificate, besides localhost.
    ///
    /// If the server listens on all addresses, this includes the current addresses of the machine.
    pub(super) fn names(&self) -> BTreeSet<Host> {
        let mut names: BTreeSet<Host> = self.more.iter().cloned().collect();
        match self.listen.ip() {
            // The certificate for localhost always has this address.
            ip if ip == IpAddr::from(Ipv4Addr::LOCALHOST) => {}
            ip if ip.is_unspecified() => {
                names.insert(Host::Dns(this_machine()));
                let of_family = |it: &IpAddr| self.listen.is_ipv6() || it.is_ipv4();
                names.extend(machine_addresses().into_iter().filter(of_family).map(Host::Ip));
            }
            ip => drop(names.insert(Host::Ip(ip))),
        }
        names
    }
}

/// Parses a name or an address for the certificate.
pub(crate) fn parse_host(text: &str) -> anyhow::Result<Host> {
    match Host::parse(text) {
        Host::Ip(ip) if ip.is_unspecified() => {
            bail!("{text} means all addresses: use --listen {text}:PORT to add all of them")
        }
        Host::Ip(ip) => Ok(Host::Ip(ip)),
        Host::Dns(name) => {
            let rest = name.strip_prefix("*.").unwrap_or(&name);
            parse_domain(rest)?;
            Ok(Host::Dns(name))
        }
    }
}

/// Returns the addresses of this machine, including loopback but without link-local IPv6 addresses.
fn machine_addresses() -> Vec<IpAddr> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let v4 = local_v4(&read("/proc/net/fib_trie")).into_iter().map(IpAddr::from);
    let v6 = local_v6(&read("/proc/net/if_inet6")).into_iter().map(IpAddr::from);
    v4.chain(v6).collect()
}

/// Returns the local addresses in the kernel's routing table, which has the address on the line before its type.
fn local_v4(table: &str) -> BTreeSet<Ipv4Addr> {
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let local = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
    local.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse().ok()).collect()
}

/// Returns the addresses of interfaces: the first column, with 32 hexadecimal digits.
fn local_v6(table: &str) -> BTreeSet<Ipv6Addr> {
    let digits = table.lines().filter_map(|line| line.split_whitespace().next());
    let addresses = digits.filter(|it| it.len() == 32).filter_map(|it| u128::from_str_radix(it, 16).ok());
    addresses.map(Ipv6Addr::from_bits).filter(|it| !it.is_unicast_link_local()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listen: &str, more: &[&str]) -> BTreeSet<String> {
        let more = more.iter().map(|text| parse_host(text).unwrap()).collect();
        Addresses { listen: listen.parse().unwrap(), more }.names().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_certificate_has_the_listen_address_and_the_additional_names() {
        assert!(names("127.0.0.1:6443", &[]).is_empty());
        assert_eq!(names("127.0.0.2:6443", &[]), BTreeSet::from(["127.0.0.2".to_owned()]));
        assert_eq!(names("[2001:db8::1]:6443", &[]), BTreeSet::from(["2001:db8::1".to_owned()]));
        let both = names("127.0.0.1:6443", &["lab.test", "192.0.2.1"]);
        assert_eq!(both, BTreeSet::from(["lab.test".to_owned(), "192.0.2.1".to_owned()]));
    }

    #[test]
    fn a_server_on_all_addresses_has_every_address_of_the_machine() {
        let all = names("0.0.0.0:6443", &[]);
        assert!(all.contains("127.0.0.1") && all.contains(&this_machine()), "{all:?}");
        assert!(all.iter().all(|it| !it.contains(':')), "{all:?}");
    }

    #[test]
    fn addresses_are_parsed_from_the_kernel_tables() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 127.0.0.0/8 2 0 2\n        \
                     |-- 127.0.0.1\n           /32 host LOCAL\n     |-- 192.0.2.7\n        /32 host LOCAL\n     |-- 192.0.2.255\n        \
                     /32 link BROADCAST\n";
        assert_eq!(local_v4(table), BTreeSet::from([Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 7)]));
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fe80000000000000000000000000abcd 02 40 20 80     eth0\n\
                     20010db8000000000000000000000007 02 40 00 80     eth0\n";
        let expected = BTreeSet::from([Ipv6Addr::LOCALHOST, "2001:db8::7".parse().unwrap()]);
        assert_eq!(local_v6(table), expected);
    }

    #[test]
    fn a_host_is_an_address_or_a_dns_name() {
        for right in ["lab.test", "*.lab.test", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(parse_host(right).unwrap().to_string(), right);
        }
        for wrong in ["", "Lab", "lab_test", "0.0.0.0", "::", "*", "*.*.lab", "https://lab.test", "192.0.2.1:6443"] {
            assert!(parse_host(wrong).is_err(), "{wrong}");
        }
    }
}
