//! `perennial manifests`: what to apply so that the operator may run in a cluster.

use std::io::Write;

use perennial_core::catalog::Catalog;
use perennial_operator::rbac;

/// Print what to apply for `perennial run` in a cluster: its account, and roles with exactly the verbs that it uses
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial manifests | kubectl apply -f -\n  \
    perennial manifests --namespace pki | kubectl diff -f -\n\n\
    The namespaces that it names must exist. Secrets are granted in those of the catalog, and nowhere else.")]
pub(crate) struct Args {
    /// The namespace of the account and of the lease
    #[arg(long, value_name = "NAMESPACE", default_value = "openshift-kube-apiserver-operator")]
    namespace: String,
}

/// Prints them as YAML.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    for (index, object) in rbac::objects(Catalog::builtin(), &args.namespace).iter().enumerate() {
        let separator = if index == 0 { "" } else { "---\n" };
        write!(out, "{separator}{}", serde_norway::to_string(object)?)?;
    }
    Ok(())
}
