//! A control plane starts, serves other people's clients, and ends with its handle.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{net::TcpStream, os::unix::fs::PermissionsExt, process::Command};

use perennial_testbed::{
    check::kubectl_view,
    kubernetes::{ControlPlane, program},
};

#[tokio::test]
async fn a_control_plane_serves_kubectl_and_ends_with_its_handle() {
    let control_plane = ControlPlane::start().await.unwrap_or_else(|error| panic!("{error}"));
    let kubeconfig = control_plane.kubeconfig();
    assert_eq!(kubeconfig.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let view = kubectl_view(&kubeconfig).unwrap();
    let server = view["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let address = server.strip_prefix("https://").unwrap();
    TcpStream::connect(address).unwrap();

    let cache = kubeconfig.with_extension("cache");
    let kubectl = |arguments: &[&str]| {
        let mut command = Command::new(program("kubectl").unwrap());
        command.args(arguments).arg("--kubeconfig").arg(&kubeconfig).arg("--cache-dir").arg(&cache);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    };
    kubectl(&["create", "configmap", "it", "--from-literal", "k=v"]).unwrap();
    assert_eq!(kubectl(&["get", "configmap", "it", "--output", "jsonpath={.data.k}"]).unwrap(), "v");
    let refused = kubectl(&["get", "configmap", "it", "--as", "stranger"]).unwrap_err();
    assert!(refused.contains("User \"stranger\" cannot get resource \"configmaps\""), "{refused}");

    let directory = kubeconfig.parent().unwrap().to_owned();
    drop(control_plane);
    assert!(TcpStream::connect(address).is_err());
    assert!(!directory.exists());
}
