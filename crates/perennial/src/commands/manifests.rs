//! `perennial manifests`: what to apply so that the operator runs in a cluster.

use std::io::Write;

use perennial_core::catalog::{Catalog, Component};
use perennial_operator::observe::KEPT;
use perennial_operator::{deployment, rbac};

use crate::cluster::COMPONENTS;
use crate::talk;

/// Print what to apply for `perennial run` in a cluster: namespaces, its account, roles with exactly the verbs that it uses, and itself
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial manifests --image registry.example.com/perennial:0.1.0 | kubectl apply -f -\n  \
    perennial manifests --controllers service-ca --image registry.example.com/perennial:0.1.0 | kubectl apply -f -\n  \
    perennial manifests --no-namespaces --namespace pki | kubectl diff -f -\n\n\
    On a cluster that has the namespaces already, such as OpenShift, leave them out with --no-namespaces, and also\n\
    before you give the output to kubectl delete: a namespace takes everything in it with it.\n\n\
    Secrets are granted in the namespaces of the catalog, and in all others only for service-ca, because every Service\n\
    may ask for a certificate: --controllers leaves that out. Metrics are read by whoever is bound to the ClusterRole\n\
    perennial-metrics-reader.")]
pub(crate) struct Args {
    /// The namespace of the account, of the lease and of the pods [default: that of the operator of the first component, such as
    /// openshift-kube-apiserver-operator]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// The image of the pods, which has `perennial` as its entry point and the number of a user who is not root; without it, only account and roles are printed
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Only for these components [default: all of them]
    #[arg(long, value_name = "COMPONENTS", value_delimiter = ',', value_parser = COMPONENTS)]
    controllers: Vec<String>,

    /// Also for `perennial run --publish-service-ca`
    #[arg(long)]
    publish_service_ca: bool,

    /// Leave out the namespaces
    #[arg(long)]
    no_namespaces: bool,
}

/// Prints them as YAML.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let components = chosen(&args.controllers);
    let namespace = args.namespace.as_deref().unwrap_or_else(|| operator_namespace(&args.controllers));
    let catalog = Catalog::builtin();
    let mut objects = Vec::new();
    if !args.no_namespaces {
        objects.extend(rbac::namespaces_for(catalog, namespace, &components));
    }
    objects.extend(rbac::objects_for(catalog, namespace, &components));
    objects.push(rbac::metrics_reader());
    if args.publish_service_ca {
        objects.extend(rbac::publication(namespace));
    }
    let mut more: Vec<&str> = args.publish_service_ca.then_some("--publish-service-ca").into_iter().collect();
    let controllers = format!("--controllers={}", args.controllers.join(","));
    if !args.controllers.is_empty() {
        more.push(&controllers);
    }
    match &args.image {
        Some(image) => objects.extend(deployment::objects(image, namespace, &more)),
        None => talk::line(format_args!("without --image, no Deployment is printed")),
    }
    for (index, object) in objects.iter().enumerate() {
        let separator = if index == 0 { "" } else { "---\n" };
        write!(out, "{separator}{}", serde_norway::to_string(object)?)?;
    }
    Ok(())
}

/// The components that are kept where a person chose these; all of them where nobody chose.
fn chosen(controllers: &[String]) -> Vec<Component> {
    let is_kept = |it: &Component| controllers.is_empty() || controllers.iter().any(|kept| kept == it.owner());
    KEPT.into_iter().filter(is_kept).collect()
}

/// The namespace of the account and of the lease where nobody says otherwise: that of the operator of the first component.
pub(crate) fn operator_namespace(controllers: &[String]) -> &'static str {
    let mut namespaces = chosen(controllers).into_iter().filter_map(Component::operator_namespace);
    namespaces.next().expect("every component that is kept has an operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_where_the_operator_of_the_first_component_is() {
        let of = |names: &[&str]| operator_namespace(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(&[]), "openshift-kube-apiserver-operator");
        assert_eq!(of(&["service-ca"]), "openshift-service-ca-operator");
        assert_eq!(of(&["service-ca", "kube-apiserver"]), "openshift-kube-apiserver-operator");
    }
}
