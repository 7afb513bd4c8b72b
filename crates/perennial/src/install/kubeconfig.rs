//! Kubeconfigs with an embedded client certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use zeroize::Zeroizing;

/// What a kubeconfig is made of.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// The cluster's name.
    pub(crate) cluster: &'a str,
    /// The API server's URL.
    pub(crate) server: &'a str,
    /// What the client trusts, as PEM.
    pub(crate) bundle_pem: &'a str,
    /// The user's name inside the file.
    pub(crate) user: &'a str,
    /// The client certificate as PEM.
    pub(crate) certificate_pem: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    kind: &'a str,
    clusters: [NamedCluster<'a>; 1],
    contexts: [NamedContext<'a>; 1],
    current_context: &'a str,
    preferences: Empty,
    users: [NamedUser<'a>; 1],
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct NamedCluster<'a> {
    cluster: Cluster<'a>,
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster<'a> {
    certificate_authority_data: String,
    server: &'a str,
}

#[derive(Serialize)]
struct NamedContext<'a> {
    context: Context<'a>,
    name: &'a str,
}

#[derive(Serialize)]
struct Context<'a> {
    cluster: &'a str,
    user: &'a str,
}

#[derive(Serialize)]
struct NamedUser<'a> {
    user: User,
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: Zeroizing<String>,
}

/// The kubeconfig as YAML.
pub(crate) fn render(parts: &Parts<'_>, key_pem: &Zeroizing<String>) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let kubeconfig = Kubeconfig {
        api_version: "v1",
        kind: "Config",
        clusters: [NamedCluster {
            cluster: Cluster { certificate_authority_data: STANDARD.encode(parts.bundle_pem), server: parts.server },
            name: parts.cluster,
        }],
        contexts: [NamedContext { context: Context { cluster: parts.cluster, user: parts.user }, name: parts.user }],
        current_context: parts.user,
        preferences: Empty {},
        users: [NamedUser {
            user: User {
                client_certificate_data: STANDARD.encode(parts.certificate_pem),
                client_key_data: Zeroizing::new(STANDARD.encode(key_pem.as_bytes())),
            },
            name: parts.user,
        }],
    };
    Ok(Zeroizing::new(serde_norway::to_string(&kubeconfig)?.into_bytes()))
}
