//! Writes kubeconfigs with an embedded client certificate.

use zeroize::Zeroizing;

use super::yaml::Document;

/// The content of a kubeconfig.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// The cluster's name.
    pub(crate) cluster: &'a str,
    /// The API server's URL.
    pub(crate) server: &'a str,
    /// The name in the server's certificate, if it differs from the URL.
    pub(crate) server_name: Option<&'a str>,
    /// The CA bundle of the client, as PEM.
    pub(crate) bundle_pem: &'a str,
    /// The user's name inside the file.
    pub(crate) user: &'a str,
    /// The client certificate as PEM.
    pub(crate) certificate_pem: &'a str,
}

/// Returns the kubeconfig as YAML.
pub(crate) fn render(parts: &Parts<'_>, key_pem: &Zeroizing<String>) -> Zeroizing<Vec<u8>> {
    let mut yaml = Document::default();
    yaml.line("apiVersion: v1")
        .line("kind: Config")
        .line("clusters:")
        .text("- name: ", parts.cluster)
        .line("  cluster:")
        .base64("    certificate-authority-data: ", parts.bundle_pem.as_bytes())
        .text("    server: ", parts.server);
    if let Some(name) = parts.server_name {
        yaml.text("    tls-server-name: ", name);
    }
    yaml.line("contexts:")
        .text("- name: ", parts.user)
        .line("  context:")
        .text("    cluster: ", parts.cluster)
        .text("    user: ", parts.user)
        .text("current-context: ", parts.user)
        .line("preferences: {}")
        .line("users:")
        .text("- name: ", parts.user)
        .line("  user:")
        .base64("    client-certificate-data: ", parts.certificate_pem.as_bytes())
        .base64("    client-key-data: ", key_pem.as_bytes());
    yaml.finish()
}
