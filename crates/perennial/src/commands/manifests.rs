//! `perennial manifests`: what to apply so that the operator runs in a cluster.

use std::io::Write;

use perennial_core::catalog::{Catalog, Component};
use perennial_operator::observe::KEPT;
use perennial_operator::{deployment, rbac};

use crate::cluster::COMPONENTS;
use crate::talk;

/// Print what to apply for `perennial run` in a cluster: its account, roles with exactly the verbs that it uses, and itself
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial manifests --image registry.example.com/perennial:0.1.0 | kubectl apply -f -\n  \
    perennial manifests --namespace pki | kubectl diff -f -\n\n\
    The namespaces that it names must exist. Secrets are granted in those of the catalog, and in all others only for\n\
    service-ca, because every Service may ask for a certificate: --controllers leaves that out. Metrics are read by\n\
    whoever is bound to the ClusterRole perennial-metrics-reader.")]
pub(crate) struct Args {
    /// The namespace of the account, of the lease and of the pods
    #[arg(long, value_name = "NAMESPACE", default_value = "openshift-kube-apiserver-operator")]
    namespace: String,

    /// The image of the pods, which has `perennial` as its entry point and the number of a user who is not root; without it, only account and roles are printed
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Only for these components [default: all of them]
    #[arg(long, value_name = "COMPONENTS", value_delimiter = ',', value_parser = COMPONENTS)]
    controllers: Vec<String>,

    /// Also for `perennial run --publish-service-ca`
    #[arg(long)]
    publish_service_ca: bool,
}

/// Prints them as YAML.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let is_kept =
        |it: &Component| args.controllers.is_empty() || args.controllers.iter().any(|kept| kept == it.owner());
    let components: Vec<Component> = KEPT.into_iter().filter(is_kept).collect();
    let mut objects = rbac::objects_for(Catalog::builtin(), &args.namespace, &components);
    objects.push(rbac::metrics_reader());
    if args.publish_service_ca {
        objects.extend(rbac::publication(&args.namespace));
    }
    let mut more: Vec<&str> = args.publish_service_ca.then_some("--publish-service-ca").into_iter().collect();
    let controllers = format!("--controllers={}", args.controllers.join(","));
    if !args.controllers.is_empty() {
        more.push(&controllers);
    }
    match &args.image {
        Some(image) => objects.extend(deployment::objects(image, &args.namespace, &more)),
        None => talk::line(format_args!("without --image, no Deployment is printed")),
    }
    for (index, object) in objects.iter().enumerate() {
        let separator = if index == 0 { "" } else { "---\n" };
        write!(out, "{separator}{}", serde_norway::to_string(object)?)?;
    }
    Ok(())
}
