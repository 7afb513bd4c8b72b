//! Which install-configs are accepted, and the errors of the others.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::invalid::Problem;

/// Returns the result of [`parse`]: the configuration and the warnings, or the problems.
fn judge(document: &str) -> String {
    match parse(document) {
        Ok((config, warnings)) => {
            let InstallConfig { service_network, machine_network, platform, signer_key, feature_gates, .. } = &config;
            let mut lines = vec![
                config.cluster_domain(),
                format!("services {service_network:?}, machines {machine_network:?}"),
                format!("{} with API at {:?}", platform.name, platform.api_vips),
            ];
            lines.extend(platform.bootstrap_provisioning_ip.map(|ip| format!("bootstrap {ip}")));
            lines.extend(signer_key.map(|key| format!("signers {key}")));
            lines.extend((!feature_gates.is_empty()).then(|| format!("gates {feature_gates:?}")));
            lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
            lines.join("\n")
        }
        Err(error) => {
            let problems: Vec<String> = error.problems.iter().map(Problem::to_string).collect();
            problems.join("\n")
        }
    }
}

fn check(document: &str, expected: Expect) {
    expected.assert_eq(&judge(document));
}

/// Checks some lines of an otherwise valid file.
fn check_with(lines: &str, expected: Expect) {
    check(&format!("metadata: {{name: mine}}\nbaseDomain: example.com\n{lines}\n"), expected);
}

/// Checks a key for signers.
fn check_key(key: &str, expected: Expect) {
    let document = format!(
        "{{metadata: {{name: m}}, baseDomain: b.c, platform: {{aws: {{}}}}, pki: {{signerCertificates: {{key: {key}}}}}}}"
    );
    let verdict = judge(&document);
    let verdict = verdict.lines().filter(|line| line.contains("signers ") || line.contains("pki"));
    expected.assert_eq(&verdict.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_whole_file_is_read() {
    check(
        "
apiVersion: v1
metadata: {name: my-cluster}
baseDomain: example.com.
controlPlane: {name: master, replicas: 3}
networking:
  networkType: OVNKubernetes
  clusterNetwork: [{cidr: 10.128.0.0/14, hostPrefix: 23}]
  serviceNetwork: [172.31.0.0/16, 'fd02::/112']
  machineNetwork: [{cidr: 192.168.0.0/24}, {cidr: 'fd00::/64'}]
platform:
  baremetal:
    apiVIPs: [192.168.0.5, 'fd00::5']
    ingressVIPs: [192.168.0.6]
featureSet: CustomNoUpgrade
featureGates: [ConfigurablePKI=true, Other=false]
pki: {signerCertificates: {key: {algorithm: ECDSA, ecdsa: {curve: P384}}}}
pullSecret: '{}'
",
        expect![[r#"
            my-cluster.example.com
            services [172.31.0.0/16, fd02::/112], machines [192.168.0.0/24, fd00::/64]
            baremetal with API at [192.168.0.5, fd00::5]
            bootstrap 172.22.0.2
            signers ECDSA P384
            gates {"ConfigurablePKI": true, "Other": false}"#]],
    );
}

#[test]
fn a_byte_order_mark_is_skipped() {
    check(
        "\u{feff}metadata: {name: mine}\nbaseDomain: example.com\nplatform: {aws: {}}\n",
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        aws with API at []"#]],
    );
}

#[test]
fn few_fields_are_required() {
    check_with(
        "platform: {aws: {region: eu-west-1}}",
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        aws with API at []"#]],
    );
    check_with(
        "networking: {serviceNetwork: [], machineNetwork: []}",
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        none with API at []
        warning: platform: there is no platform: load balancers and their addresses are yours to provide"#]],
    );
    check_with(
        "networking: null\nplatform: null\npki: null\nfeatureGates: null",
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        none with API at []
        warning: platform: there is no platform: load balancers and their addresses are yours to provide"#]],
    );
    check(
        "{}",
        expect![[r#"
        metadata: Required value
        baseDomain: Required value"#]],
    );
    check(
        "{metadata: {}, baseDomain: null}",
        expect![[r#"
        metadata.name: Required value
        baseDomain: Required value"#]],
    );
    check(
        "{metadata: [], baseDomain: 7}",
        expect![[r#"
        baseDomain: Invalid value: "integer": baseDomain in body must be of type string: "integer"
        metadata: Invalid value: "array": metadata in body must be of type object: "array""#]],
    );
}

#[test]
fn names_are_dns_names() {
    check(
        "{metadata: {name: My_Cluster}, baseDomain: example..com}",
        expect![[r#"
        metadata.name: Invalid value: "My_Cluster": must consist of lower case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit and have at most 63 characters
        baseDomain: Invalid value: "example..com": must consist of lower case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit and have at most 63 characters"#]],
    );
    check(
        "{metadata: {name: ''}, baseDomain: '-a.b'}",
        expect![[r#"
        metadata.name: Invalid value: "": must consist of lower case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit and have at most 63 characters
        baseDomain: Invalid value: "-a.b": must consist of lower case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit and have at most 63 characters"#]],
    );
    check(
        &format!("{{metadata: {{name: {}}}, baseDomain: a.b}}", "x".repeat(64)),
        expect![[
            r#"metadata.name: Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": must consist of lower case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit and have at most 63 characters"#
        ]],
    );
    let long = vec!["x".repeat(60); 4].join(".");
    check(
        &format!("{{metadata: {{name: {}}}, baseDomain: {long}}}", "y".repeat(20)),
        expect![[
            r#"metadata.name: Invalid value: "yyyyyyyyyyyyyyyyyyyy.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": the domain of the cluster may not have more than 253 characters"#
        ]],
    );
}

#[test]
fn networks_are_checked() {
    check_with(
        "networking: {serviceNetwork: [10.0.0.0/16, 10.0.0.0/33]}",
        expect![[
            r#"networking.serviceNetwork[1]: Invalid value: "10.0.0.0/33": must be a network such as 10.0.0.0/16 or fd00::/48: the prefix length of an IPv4 network is 0 to 32"#
        ]],
    );
    check_with(
        "networking: {serviceNetwork: [10.0.0.5/16, 'fd00::1/64']}",
        expect![[r#"
        networking.serviceNetwork[0]: Invalid value: "10.0.0.5/16": has bits set beyond the prefix: the network is 10.0.0.0/16
        networking.serviceNetwork[1]: Invalid value: "fd00::1/64": has bits set beyond the prefix: the network is fd00::/64"#]],
    );
    check_with(
        "networking: {serviceNetwork: ['fd00::/112', 172.30.0.0/16]}\nplatform: {aws: {}}",
        expect![[r#"
        mine.example.com
        services [fd00::/112, 172.30.0.0/16], machines [10.0.0.0/16]
        aws with API at []"#]],
    );
    check_with(
        "networking: {serviceNetwork: [10.0.0.0/16, 10.1.0.0/16]}",
        expect![[
            r#"networking.serviceNetwork: Invalid value: two entries must be one of IPv4 and one of IPv6; both are IPv4; found ["10.0.0.0/16","10.1.0.0/16"]"#
        ]],
    );
    check_with(
        "networking: {serviceNetwork: ['fd00::/112', 'fd01::/112']}",
        expect![[
            r#"networking.serviceNetwork: Invalid value: two entries must be one of IPv4 and one of IPv6; both are IPv6; found ["fd00::/112","fd01::/112"]"#
        ]],
    );
    check_with(
        "networking: {serviceNetwork: [10.0.0.0/16, 'fd00::/112', 10.1.0.0/16]}",
        expect![[r#"networking.serviceNetwork: Too many: 3: must have at most 2 items"#]],
    );
    check_with(
        "networking: {serviceNetwork: [10.0.0.0, nonsense/8, 10.0.0.0/-1, '10.0.0.0/+8', 01.0.0.0/8]}",
        expect![[r#"
        networking.serviceNetwork: Too many: 5: must have at most 2 items
        networking.serviceNetwork[0]: Invalid value: "10.0.0.0": must be a network such as 10.0.0.0/16 or fd00::/48: there is no prefix length
        networking.serviceNetwork[1]: Invalid value: "nonsense/8": must be a network such as 10.0.0.0/16 or fd00::/48: "nonsense" is not an IP address
        networking.serviceNetwork[2]: Invalid value: "10.0.0.0/-1": must be a network such as 10.0.0.0/16 or fd00::/48: the prefix length of an IPv4 network is 0 to 32
        networking.serviceNetwork[3]: Invalid value: "10.0.0.0/+8": must be a network such as 10.0.0.0/16 or fd00::/48: the prefix length of an IPv4 network is 0 to 32
        networking.serviceNetwork[4]: Invalid value: "01.0.0.0/8": must be a network such as 10.0.0.0/16 or fd00::/48: "01.0.0.0" is not an IP address"#]],
    );
    check_with(
        "networking: {serviceNetwork: 10.0.0.0/16}",
        expect![[
            r#"networking.serviceNetwork: Invalid value: "string": networking.serviceNetwork in body must be of type array: "string""#
        ]],
    );
    check_with(
        "networking: {serviceNetwork: [7, null]}",
        expect![[r#"
        networking.serviceNetwork[0]: Invalid value: "integer": networking.serviceNetwork[0] in body must be of type string: "integer"
        networking.serviceNetwork[1]: Invalid value: "null": networking.serviceNetwork[1] in body must be of type string: "null""#]],
    );
    check_with(
        "networking: {machineNetwork: [{cidr: 10.0.0.0/8}, {cidr: 10.0.0.1/8}, {}, 10.0.0.0/8]}",
        expect![[r#"
        networking.machineNetwork[2].cidr: Required value
        networking.machineNetwork[3]: Invalid value: "string": networking.machineNetwork[3] in body must be of type object: "string"
        networking.machineNetwork[1].cidr: Invalid value: "10.0.0.1/8": has bits set beyond the prefix: the network is 10.0.0.0/8"#]],
    );
    check_with(
        "networking: []",
        expect![[r#"networking: Invalid value: "array": networking in body must be of type object: "array""#]],
    );
}

#[test]
fn a_service_network_needs_an_address_for_the_api() {
    let with = |network: &str| format!("networking: {{serviceNetwork: ['{network}']}}\nplatform: {{aws: {{}}}}");
    check_with(
        &with("10.0.0.1/32"),
        expect![[
            r#"networking.serviceNetwork[0]: Invalid value: "10.0.0.1/32": is too small: it has no address for the API beside its own"#
        ]],
    );
    check_with(
        &with("fd00::/128"),
        expect![[
            r#"networking.serviceNetwork[0]: Invalid value: "fd00::/128": is too small: it has no address for the API beside its own"#
        ]],
    );
    check_with(
        &with("255.255.255.255/32"),
        expect![[
            r#"networking.serviceNetwork[0]: Invalid value: "255.255.255.255/32": is too small: it has no address for the API beside its own"#
        ]],
    );
    check_with(
        &with("10.0.0.2/31"),
        expect![[r#"
        mine.example.com
        services [10.0.0.2/31], machines [10.0.0.0/16]
        aws with API at []"#]],
    );
    check_with(
        &with("fd00::/127"),
        expect![[r#"
        mine.example.com
        services [fd00::/127], machines [10.0.0.0/16]
        aws with API at []"#]],
    );
    check_with(
        "networking: {serviceCIDR: 10.0.0.1/32}\nplatform: {aws: {}}",
        expect![[
            r#"networking.serviceCIDR: Invalid value: "10.0.0.1/32": is too small: it has no address for the API beside its own"#
        ]],
    );
}

#[test]
fn deprecated_names_of_networks_are_read() {
    let with = |networks: &str| format!("networking: {{{networks}}}\nplatform: {{aws: {{}}}}");
    check_with(
        &with("serviceCIDR: 172.31.0.0/16, machineCIDR: 192.168.0.0/24"),
        expect![[r#"
        mine.example.com
        services [172.31.0.0/16], machines [192.168.0.0/24]
        aws with API at []"#]],
    );
    check_with(
        &with("serviceCIDR: 172.31.0.0/16, serviceNetwork: []"),
        expect![[r#"
        mine.example.com
        services [172.31.0.0/16], machines [10.0.0.0/16]
        aws with API at []"#]],
    );
    check_with(
        &with("serviceCIDR: null, machineCIDR: null"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        aws with API at []"#]],
    );
    check_with(
        &with(
            "serviceCIDR: 172.31.0.0/16, serviceNetwork: [172.31.0.0/16, 'fd02::/112'], \
             machineCIDR: 192.168.0.0/24, machineNetwork: [{cidr: 192.168.0.0/24}, {cidr: 192.168.1.0/24}]",
        ),
        expect![[r#"
            mine.example.com
            services [172.31.0.0/16, fd02::/112], machines [192.168.0.0/24, 192.168.1.0/24]
            aws with API at []"#]],
    );
    check_with(
        &with(
            "serviceCIDR: 172.31.0.0/16, serviceNetwork: [172.30.0.0/16], \
             machineCIDR: 192.168.1.0/24, machineNetwork: [{cidr: 192.168.0.0/24}, {cidr: 192.168.1.0/24}]",
        ),
        expect![[r#"
            networking.serviceCIDR: Invalid value: "172.31.0.0/16": differs from networking.serviceNetwork[0], which is 172.30.0.0/16; better use networking.serviceNetwork alone
            networking.machineCIDR: Invalid value: "192.168.1.0/24": differs from networking.machineNetwork[0].cidr, which is 192.168.0.0/24; better use networking.machineNetwork alone"#]],
    );
    check_with(
        &with("serviceCIDR: 172.31.0.1/16, machineCIDR: nonsense"),
        expect![[r#"
        networking.serviceCIDR: Invalid value: "172.31.0.1/16": has bits set beyond the prefix: the network is 172.31.0.0/16
        networking.machineCIDR: Invalid value: "nonsense": must be a network such as 10.0.0.0/16 or fd00::/48: there is no prefix length"#]],
    );
    check_with(
        &with("serviceCIDR: [172.31.0.0/16], machineCIDR: 7"),
        expect![[r#"
        networking.machineCIDR: Invalid value: "integer": networking.machineCIDR in body must be of type string: "integer"
        networking.serviceCIDR: Invalid value: "array": networking.serviceCIDR in body must be of type string: "array""#]],
    );
    check_with(
        &with("serviceCIDR: 172.31.0.0/16, serviceNetwork: [nonsense, 172.30.0.0/16]"),
        expect![[
            r#"networking.serviceNetwork[0]: Invalid value: "nonsense": must be a network such as 10.0.0.0/16 or fd00::/48: there is no prefix length"#
        ]],
    );
}

#[test]
fn virtual_addresses_are_found() {
    let on = |platform: &str, settings: &str| format!("platform: {{{platform}: {settings}}}");
    check_with(
        &on("vsphere", "{apiVIPs: [10.0.0.5]}"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        vsphere with API at [10.0.0.5]"#]],
    );
    check_with(
        &on("vsphere", "{apiVIP: 10.0.0.5}"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        vsphere with API at [10.0.0.5]"#]],
    );
    check_with(
        &on("ovirt", "{api_vips: [10.0.0.5], apiVIP: ignored}"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        ovirt with API at [10.0.0.5]"#]],
    );
    check_with(
        &on("ovirt", "{api_vip: 10.0.0.5}"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        ovirt with API at [10.0.0.5]"#]],
    );
    check_with(
        &on("nutanix", "{apiVIP: 10.0.0.5, apiVIPs: [10.0.0.5, 'fd00::5']}"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        nutanix with API at [10.0.0.5, fd00::5]
        warning: platform.nutanix.apiVIPs[1]: fd00::5 is outside of every networking.machineNetwork (10.0.0.0/16)"#]],
    );
    check_with(
        &on("nutanix", "{apiVIP: 10.0.0.6, apiVIPs: [10.0.0.5]}"),
        expect![[
            r#"platform.nutanix.apiVIP: Invalid value: "10.0.0.6": must be one of apiVIPs; better use apiVIPs alone"#
        ]],
    );
    check_with(
        &on("openstack", "{apiVIPs: [10.0.0.5, 10.0.0.6]}"),
        expect![[
            r#"platform.openstack.apiVIPs: Invalid value: two entries must be one of IPv4 and one of IPv6; both are IPv4; found ["10.0.0.5","10.0.0.6"]"#
        ]],
    );
    check_with(
        &on("openstack", "{apiVIPs: [1, 10.0.0.256, 10.0.0.6]}"),
        expect![[r#"
        platform.openstack.apiVIPs[0]: Invalid value: "integer": platform.openstack.apiVIPs[0] in body must be of type string: "integer"
        platform.openstack.apiVIPs: Too many: 3: must have at most 2 items
        platform.openstack.apiVIPs[1]: Invalid value: "10.0.0.256": must be an IP address such as 192.0.2.1 or 2001:db8::1"#]],
    );
    check_with(
        &on("openstack", "{apiVIPs: 10.0.0.5}"),
        expect![[
            r#"platform.openstack.apiVIPs: Invalid value: "string": platform.openstack.apiVIPs in body must be of type array: "string""#
        ]],
    );
    check_with(
        &on("openstack", "{apiVIPs: [192.0.2.1]}"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        openstack with API at [192.0.2.1]
        warning: platform.openstack.apiVIPs[0]: 192.0.2.1 is outside of every networking.machineNetwork (10.0.0.0/16)"#]],
    );
    for platform in ["baremetal", "nutanix", "openstack", "powervc", "vsphere"] {
        let verdict =
            judge(&format!("metadata: {{name: a}}\nbaseDomain: b\n{}", on(platform, "{apiVIPs: [10.0.0.5]}")));
        assert!(verdict.contains(&format!("{platform} with API at [10.0.0.5]")), "{verdict}");
        assert!(!verdict.contains("warning"), "{verdict}");
    }
    check_with(
        &on("powervs", "{apiVIPs: [10.0.0.5], apiVIP: nonsense}"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        powervs with API at []
        warning: platform.powervs.apiVIPs: is ignored; it is read on baremetal, nutanix, openstack, ovirt, powervc, vsphere
        warning: platform.powervs.apiVIP: is ignored; it is read on baremetal, nutanix, openstack, ovirt, powervc, vsphere"#]],
    );
    check_with(
        &on("none", ""),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        none with API at []
        warning: platform: there is no platform: load balancers and their addresses are yours to provide"#]],
    );
    check_with(
        "platform: {}",
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        none with API at []
        warning: platform: there is no platform: load balancers and their addresses are yours to provide"#]],
    );
    check_with(
        &on("baremtal", "{}"),
        expect![[r#"
            mine.example.com
            services [172.30.0.0/16], machines [10.0.0.0/16]
            baremtal with API at []
            warning: platform: "baremtal" is not known; known are aws, azure, baremetal, external, gcp, ibmcloud, libvirt, nutanix, openstack, ovirt, powervc, powervs, vsphere and none"#]],
    );
    check_with("platform: {aws: {}, gcp: {}}", expect![[r#"platform: Too many: 2: must have at most 1 item"#]]);
    check_with(
        "platform: aws",
        expect![[r#"platform: Invalid value: "string": platform in body must be of type object: "string""#]],
    );
    check_with(
        "platform: {aws: 1}",
        expect![[r#"platform.aws: Invalid value: "integer": platform.aws in body must be of type object: "integer""#]],
    );
}

#[test]
fn bare_metal_has_a_provisioning_network() {
    let with = |settings: &str| format!("platform: {{baremetal: {{{settings}}}}}");
    check_with(
        &with(""),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        baremetal with API at []
        bootstrap 172.22.0.2"#]],
    );
    check_with(
        &with("provisioningNetworkCIDR: 'fd00:1101::/64'"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        baremetal with API at []
        bootstrap fd00:1101::2"#]],
    );
    check_with(
        &with("bootstrapProvisioningIP: 172.22.0.9, provisioningNetwork: Managed"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        baremetal with API at []
        bootstrap 172.22.0.9"#]],
    );
    check_with(
        &with("bootstrapProvisioningIP: 192.0.2.9"),
        expect![[
            r#"platform.baremetal.bootstrapProvisioningIP: Invalid value: "192.0.2.9": must be in provisioningNetworkCIDR 172.22.0.0/24"#
        ]],
    );
    check_with(
        &with("bootstrapProvisioningIP: 192.0.2.9, provisioningNetwork: Disabled"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        baremetal with API at []
        bootstrap 192.0.2.9"#]],
    );
    check_with(
        &with("provisioningNetwork: Disabled"),
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        baremetal with API at []"#]],
    );
    check_with(
        &with("provisioningNetwork: disabled"),
        expect![[
            r#"platform.baremetal.provisioningNetwork: Unsupported value: "disabled": supported values: "Managed", "Unmanaged", "Disabled""#
        ]],
    );
    check_with(
        &with("provisioningNetworkCIDR: 192.0.2.8/31"),
        expect![[
            r#"platform.baremetal.provisioningNetworkCIDR: Invalid value: "192.0.2.8/31": has no third address for the bootstrap machine"#
        ]],
    );
    check_with(
        &with("provisioningNetworkCIDR: 192.0.2.9/24"),
        expect![[
            r#"platform.baremetal.provisioningNetworkCIDR: Invalid value: "192.0.2.9/24": has bits set beyond the prefix: the network is 192.0.2.0/24"#
        ]],
    );
}

#[test]
fn the_key_of_signers_has_the_rules_of_the_resource() {
    check_key("{algorithm: RSA, rsa: {keySize: 4096}}", expect![[r#"signers RSA 4096"#]]);
    check_key("{algorithm: ECDSA, ecdsa: {curve: P521}}", expect![[r#"signers ECDSA P521"#]]);
    check_key(
        "{algorithm: RSA, rsa: {keySize: 1024}}",
        expect![[
            r#"pki.signerCertificates.key.rsa.keySize: Unsupported value: 1024: supported values: "2048", "3072", "4096""#
        ]],
    );
    check_key(
        "{algorithm: RSA, rsa: {keySize: '4096'}}",
        expect![[r#"
        pki.signerCertificates.key.rsa.keySize: Invalid value: "string": pki.signerCertificates.key.rsa.keySize in body must be of type integer: "string"
        pki.signerCertificates.key.rsa.keySize: Unsupported value: "4096": supported values: "2048", "3072", "4096""#]],
    );
    check_key(
        "{algorithm: ECDSA, ecdsa: {curve: P224}}",
        expect![[
            r#"pki.signerCertificates.key.ecdsa.curve: Unsupported value: "P224": supported values: "P256", "P384", "P521""#
        ]],
    );
    check_key(
        "{algorithm: Ed25519}",
        expect![[
            r#"pki.signerCertificates.key.algorithm: Unsupported value: "Ed25519": supported values: "RSA", "ECDSA""#
        ]],
    );
    check_key(
        "{algorithm: RSA, ecdsa: {curve: P256}}",
        expect![[
            r#"pki.signerCertificates.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA","ecdsa":{"curve":"P256"}}"#
        ]],
    );
    check_key(
        "{algorithm: ECDSA, rsa: {keySize: 2048}}",
        expect![[
            r#"pki.signerCertificates.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"ECDSA","rsa":{"keySize":2048}}"#
        ]],
    );
    check_key(
        "{algorithm: RSA, rsa: {keySize: 2048}, ecdsa: {curve: P256}}",
        expect![[
            r#"pki.signerCertificates.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA","rsa":{"keySize":2048},"ecdsa":{"curve":"P256"}}"#
        ]],
    );
    check_key(
        "{algorithm: RSA}",
        expect![[
            r#"pki.signerCertificates.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA"}"#
        ]],
    );
    check_key("{rsa: {keySize: 2048}}", expect![[r#"pki.signerCertificates.key.algorithm: Required value"#]]);
    check_key(
        "{algorithm: RSA, rsa: {keySize: 2048, hash: sha1}}",
        expect![[r#"unknown field "pki.signerCertificates.key.rsa.hash""#]],
    );
    check_key("null", expect![[r#"pki.signerCertificates.key: Required value"#]]);
    check_with("pki: {}", expect![[r#"pki.signerCertificates: Required value"#]]);
    check_with("pki: {signerCertificates: {}}", expect![[r#"pki.signerCertificates.key: Required value"#]]);
    check_with(
        "pki: {signerCertificates: {key: {algorithm: RSA, rsa: {keySize: 2048}}}, categories: []}",
        expect![[r#"unknown field "pki.categories""#]],
    );
    check_with("pki: RSA", expect![[r#"pki: Invalid value: "string": pki in body must be of type object: "string""#]]);
}

#[test]
fn a_whole_number_with_a_fraction_is_a_whole_number() {
    let key = json!({"algorithm": "RSA", "rsa": {"keySize": 4096.0}});
    let document = json!({"metadata": {"name": "a"}, "baseDomain": "b", "pki": {"signerCertificates": {"key": key}}});
    assert_eq!(parse_value(document).unwrap().0.signer_key, Some("RSA 4096".parse().unwrap()));
}

#[test]
fn feature_gates_are_on_or_off() {
    check_with(
        "platform: {aws: {}}\nfeatureGates: [A=true, B=false]",
        expect![[r#"
        mine.example.com
        services [172.30.0.0/16], machines [10.0.0.0/16]
        aws with API at []
        gates {"A": true, "B": false}"#]],
    );
    check_with(
        "featureGates: [A, A=yes, =true, 'A=true ', A=true=false, 7, A=true, A=false]",
        expect![[r#"
        featureGates[5]: Invalid value: "integer": featureGates[5] in body must be of type string: "integer"
        featureGates[0]: Invalid value: "A": must be NAME=true or NAME=false
        featureGates[1]: Invalid value: "A=yes": must be NAME=true or NAME=false
        featureGates[2]: Invalid value: "=true": must be NAME=true or NAME=false
        featureGates[3]: Invalid value: "A=true ": must be NAME=true or NAME=false
        featureGates[4]: Invalid value: "A=true=false": must be NAME=true or NAME=false
        featureGates[7]: Duplicate value: "A""#]],
    );
    check_with(
        "platform: {aws: {}}\nfeatureGates: ['configurablePKI=false', ShortCertRotation=true, SHORTcertROTATION=true]",
        expect![[r#"
            mine.example.com
            services [172.30.0.0/16], machines [10.0.0.0/16]
            aws with API at []
            gates {"SHORTcertROTATION": true, "ShortCertRotation": true, "configurablePKI": false}
            warning: featureGates[0]: "configurablePKI" is ignored: names are case-sensitive, this one is ConfigurablePKI
            warning: featureGates[2]: "SHORTcertROTATION" is ignored: names are case-sensitive, this one is ShortCertRotation"#]],
    );
    check_with(
        "featureGates: {A: true}",
        expect![[r#"featureGates: Invalid value: "object": featureGates in body must be of type array: "object""#]],
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    check(
        "
metadata: {name: UPPER}
networking: {serviceNetwork: [10.0.0.1/16], machineNetwork: [{cidr: x}]}
platform: {vsphere: {apiVIPs: [nowhere]}}
featureGates: [broken]
pki: {signerCertificates: {key: {algorithm: RSA}}}
",
        expect![[r#"
            baseDomain: Required value
            pki.signerCertificates.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA"}
            metadata.name: Invalid value: "UPPER": must consist of lower case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit and have at most 63 characters
            networking.serviceNetwork[0]: Invalid value: "10.0.0.1/16": has bits set beyond the prefix: the network is 10.0.0.0/16
            networking.machineNetwork[0].cidr: Invalid value: "x": must be a network such as 10.0.0.0/16 or fd00::/48: there is no prefix length
            platform.vsphere.apiVIPs[0]: Invalid value: "nowhere": must be an IP address such as 192.0.2.1 or 2001:db8::1
            featureGates[0]: Invalid value: "broken": must be NAME=true or NAME=false"#]],
    );
}

#[test]
fn documents_that_are_not_an_install_config_are_rejected() {
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: cluster}, spec: {}}",
        expect![[r#"the document is of kind "PKI"; an install-config has metadata.name and baseDomain"#]],
    );
    check("{kind: InstallConfig, metadata: {name: a}}", expect!["baseDomain: Required value"]);
    check("", expect![[r#"the document is empty"#]]);
    check("[]", expect![[r#"the document must be an object with keys, found a list"#]]);
    check("text", expect![[r#"the document must be an object with keys, found text"#]]);
    check("metadata: {name: a}\nmetadata: {name: b}\n", expect![[r#"duplicate entry with key "metadata""#]]);
    check(
        "metadata:\n\tname: a\n",
        expect![[
            r#"found character that cannot start any token at line 2 column 1, while scanning for the next token: indent with spaces, not with tabs"#
        ]],
    );
    check(
        "metadata: {name: a\n",
        expect![[
            r#"did not find expected ',' or '}' at line 2 column 1, while parsing a flow mapping at line 1 column 11"#
        ]],
    );
    check(
        "metadata: {name: a}\n---\nmetadata: {name: b}\n",
        expect![[r#"there is more than one document; one is expected"#]],
    );
}

proptest! {
    #[test]
    fn no_text_makes_parse_panic(words in proptest::collection::vec(proptest::sample::select(WORDS.to_vec()), 0..40)) {
        let _ = parse(&words.concat());
    }

    #[test]
    fn no_network_makes_parse_panic(network in "[0-9a-f:./]{0,24}", vip in "[0-9a-f:.]{0,20}") {
        let document = json!({
            "metadata": {"name": "a"}, "baseDomain": "b", "networking": {"serviceNetwork": [network]},
            "platform": {"baremetal": {"apiVIPs": [vip], "provisioningNetworkCIDR": network}},
        });
        let _ = parse_value(document);
    }
}

const WORDS: &[&str] = &[
    "metadata",
    "name",
    "baseDomain",
    "networking",
    "serviceNetwork",
    "machineNetwork",
    "cidr",
    "platform",
    "baremetal",
    "apiVIPs",
    "pki",
    "signerCertificates",
    "key",
    "featureGates",
    "A=true",
    "10.0.0.0/8",
    "::/0",
    "255.255.255.255/32",
    "null",
    ": ",
    "\n",
    "  ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "\t",
    "'",
    "\"",
    "&a ",
    "*a ",
    "<<: ",
    "---\n",
    "1",
];
