//! `perennial manifests`: prints the objects that the operator needs in a cluster.

use std::io::Write;

use perennial_core::catalog::{Catalog, Component};
use perennial_operator::deployment::Nodes;
use perennial_operator::{deployment, rbac};

use crate::cluster::components;
use crate::talk;

/// Print the manifests of the operator: namespaces, service account, roles with exactly the verbs that it uses, and a Deployment
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial manifests --image registry.example.com/perennial:0.1.0 | kubectl apply -f -\n  \
    perennial manifests --controllers service-ca --image registry.example.com/perennial:0.1.0 | kubectl apply -f -\n  \
    perennial manifests --no-namespaces --namespace pki | kubectl diff -f -\n\n\
    Use --no-namespaces on a cluster that has the namespaces, such as OpenShift, and before kubectl delete: deleting a\n\
    namespace deletes all objects in it.\n\n\
    The roles allow access to Secrets in the namespaces of the catalog. For service-ca, they allow it in all namespaces,\n\
    because every Service may ask for a certificate; --controllers without service-ca leaves this out. Bind the\n\
    ClusterRole perennial-metrics-reader to clients that read metrics.")]
pub(crate) struct Args {
    /// The namespace of the service account, the Lease and the pods [default: the namespace of the operator of the first component,
    /// such as openshift-kube-apiserver-operator]
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<String>,

    /// The image of the pods, with `perennial` as entry point and a numeric user that is not root [default: print no Deployment]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Only the rights for these components [default: all of them]
    #[arg(long, value_name = "COMPONENTS", value_delimiter = ',', value_parser = components())]
    controllers: Vec<String>,

    /// Also the rights for `perennial run --publish-service-ca`
    #[arg(long)]
    publish_service_ca: bool,

    /// Run the pods on any node [default: only on control-plane nodes, which managed clusters do not have]
    #[arg(long)]
    any_node: bool,

    /// Leave out the namespaces
    #[arg(long)]
    no_namespaces: bool,
}

/// Parses the name of a namespace.
fn parse_namespace(text: &str) -> Result<String, String> {
    let is_inner = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    let is_label = (1..=LONGEST_LABEL).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    match is_label {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not a DNS label: accepted are 1 to {LONGEST_LABEL} lower-case letters, digits and '-', with a letter or digit at \
             both ends, such as openshift-service-ca-operator"
        )),
    }
}

/// The maximum length of a DNS label.
const LONGEST_LABEL: usize = 63;

/// Prints the manifests as YAML.
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
    let nodes = if args.any_node { Nodes::Any } else { Nodes::ControlPlane };
    match &args.image {
        Some(image) => objects.extend(deployment::objects(image, namespace, &more, nodes)),
        None => talk::line(format_args!("no Deployment printed: pass --image to print one")),
    }
    for (index, object) in objects.iter().enumerate() {
        let separator = if index == 0 { "" } else { "---\n" };
        write!(out, "{separator}{}", serde_norway::to_string(object)?)?;
    }
    Ok(())
}

/// Returns the components in `--controllers`, or all managed components.
fn chosen(controllers: &[String]) -> Vec<Component> {
    let is_managed = |it: &Component| controllers.is_empty() || controllers.iter().any(|kept| kept == it.owner());
    Component::managed().filter(is_managed).collect()
}

/// Returns the default namespace of the service account and the Lease: the namespace of the operator of the first component.
pub(crate) fn operator_namespace(controllers: &[String]) -> &'static str {
    let mut namespaces = chosen(controllers).into_iter().filter_map(Component::operator_namespace);
    namespaces.next().expect("every managed component has an operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_dns_label() {
        for label in ["pki", "a", "0-0", &"a".repeat(63)] {
            assert_eq!(parse_namespace(label).as_deref(), Ok(label));
        }
        for wrong in ["", "Pki", "pki_1", "a.b", "-a", "a-", "pki!", "a b", "ä", &"a".repeat(64)] {
            let error = parse_namespace(wrong).unwrap_err();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("accepted are 1 to 63"), "{error}");
        }
    }

    #[test]
    fn the_default_namespace_is_that_of_the_operator_of_the_first_component() {
        let of = |names: &[&str]| operator_namespace(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(&[]), "openshift-kube-apiserver-operator");
        assert_eq!(of(&["service-ca"]), "openshift-service-ca-operator");
        assert_eq!(of(&["service-ca", "kube-apiserver"]), "openshift-kube-apiserver-operator");
    }
}
