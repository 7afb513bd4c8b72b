//! A control plane starts, serves other clients, and ends with its handle; a leased one is as good as new.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod lease;

use std::{
    fs,
    net::TcpStream,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use perennial_testbed::{
    check::kubectl_view,
    kubernetes::{ControlPlane, StartError, program},
};

#[tokio::test]
async fn a_control_plane_serves_kubectl_and_ends_with_its_handle() {
    let mut control_plane = ControlPlane::start().await.unwrap_or_else(|error| panic!("{error}"));
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

    let unknown = control_plane.start_controllers(&["no-such-controller"]).await.unwrap_err();
    assert!(matches!(unknown, StartError::Ended { program: "kube-controller-manager", .. }), "{unknown}");
    assert!(unknown.to_string().contains("is not in the list of known controllers"), "{unknown}");

    // Without the controller a namespace that is deleted stays; with it, it does its work as the account of that name.
    kubectl(&["create", "namespace", "short"]).unwrap();
    kubectl(&["delete", "namespace", "short", "--wait=false"]).unwrap();
    control_plane.start_controllers(&["namespace-controller"]).await.unwrap_or_else(|error| panic!("{error}"));
    kubectl(&["wait", "namespace", "short", "--for=delete", "--timeout=60s"]).unwrap();
    kubectl(&["get", "serviceaccount", "namespace-controller", "--namespace=kube-system"]).unwrap();
    assert!(control_plane.last_words().contains("kube-controller-manager:\n"));

    let directory = kubeconfig.parent().unwrap().to_owned();
    assert_eq!(processes_of(&directory).len(), 3, "{:?}", processes_of(&directory));
    drop(control_plane);
    assert_eq!(processes_of(&directory), []);
    assert!(TcpStream::connect(address).is_err());
    assert!(!directory.exists());
}

/// Returns the programs whose arguments name this directory, with their process ids.
fn processes_of(directory: &Path) -> Vec<(String, u32)> {
    let directory = directory.as_os_str().as_bytes();
    let process = |path: PathBuf| {
        let line = fs::read(path.join("cmdline")).ok()?;
        let program = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
        let id = path.file_name()?.to_str()?.parse().ok()?;
        line.windows(directory.len()).any(|part| part == directory).then_some((program, id))
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| process(entry.ok()?.path())).collect()
}
