//! etcd and the kube-apiserver's command line, with files that are updated from the objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use perennial_testbed::files::Files;
use perennial_testbed::kubernetes::Etcd;

use crate::objects::{Key, Objects, When};
use crate::static_pods::KAS;

/// etcd with the certificates of its rows, which are valid for days.
pub(crate) fn start_etcd(dir: &Path, objects: &Objects) -> Etcd {
    let place = |name: &str| dir.join("etcd-certs").join(name);
    let serving = Key::secret("openshift-etcd", "etcd-serving-m0");
    let authority = Key::map("openshift-etcd", "etcd-ca-bundle");
    let serving = Files::begin(place("serving"), &objects.newest(&serving)).unwrap();
    let authority = Files::begin(place("authority"), &objects.newest(&authority)).unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| serving.path(name));
    Etcd::start(dir, &authority.path("ca-bundle.crt"), &certificate, &key).unwrap()
}

/// The files that the kube-apiserver reloads while it runs.
pub(crate) struct HotFiles {
    files: BTreeMap<Key, Files>,
}

const SERVING: [&str; 3] = [
    "service-network-serving-certkey",
    "external-loadbalancer-serving-certkey",
    "internal-loadbalancer-serving-certkey",
];

impl HotFiles {
    pub(crate) fn begin(dir: &Path, objects: &Objects) -> HotFiles {
        let secrets = ["localhost-serving-cert-certkey", "aggregator-client"].into_iter().chain(SERVING);
        let maps = ["client-ca", "aggregator-client-ca"];
        let keys = secrets.map(|name| Key::secret(KAS, name)).chain(maps.map(|name| Key::map(KAS, name)));
        let begin = |key: Key| {
            let files = Files::begin(dir.join("certs").join(&key.name), &objects.newest(&key)).unwrap();
            (key, files)
        };
        HotFiles { files: keys.map(begin).collect() }
    }

    /// Writes them again, so long after they have changed. Ends never.
    pub(crate) async fn keep(mut self, objects: Arc<Objects>, when: When) {
        let mut written: BTreeMap<Key, _> = BTreeMap::new();
        loop {
            for (key, files) in &mut self.files {
                let held = objects.held(key, when).data;
                if written.insert(key.clone(), held.clone()).is_some_and(|old| !Arc::ptr_eq(&old, &held)) {
                    files.replace(&held).unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    fn flag(&self, flag: &str, key: &Key, name: &str) -> String {
        format!("--{flag}={}", self.files[key].path(name).display())
    }
}

/// The arguments of a kube-apiserver, except those of its revision.
pub(crate) fn arguments(dir: &Path, etcd: &Etcd, hot: &HotFiles) -> Vec<String> {
    let accounts = dir.join("service-accounts.key");
    let made = Command::new("openssl")
        .args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"])
        .arg(&accounts)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let (secret, map) = (Key::secret, Key::map);
    let mut arguments = vec![
        format!("--etcd-servers={}", etcd.url()),
        "--advertise-address=127.0.0.1".into(),
        "--authorization-mode=RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", accounts.display()),
        format!("--service-account-signing-key-file={}", accounts.display()),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        // There is one address, behind which there is always a server.
        "--endpoint-reconciler-type=none".into(),
        hot.flag("tls-cert-file", &secret(KAS, "localhost-serving-cert-certkey"), "tls.crt"),
        hot.flag("tls-private-key-file", &secret(KAS, "localhost-serving-cert-certkey"), "tls.key"),
        hot.flag("client-ca-file", &map(KAS, "client-ca"), "ca-bundle.crt"),
        hot.flag("requestheader-client-ca-file", &map(KAS, "aggregator-client-ca"), "ca-bundle.crt"),
        "--requestheader-allowed-names=system:openshift-aggregator".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        hot.flag("proxy-client-cert-file", &secret(KAS, "aggregator-client"), "tls.crt"),
        hot.flag("proxy-client-key-file", &secret(KAS, "aggregator-client"), "tls.key"),
        "--kubelet-preferred-address-types=InternalIP".into(),
        // Requests that came before new connections went to the other server are answered.
        "--shutdown-delay-duration=5s".into(),
        // Watches are ended at shutdown; otherwise the server would wait for them.
        "--shutdown-watch-termination-grace-period=2s".into(),
    ];
    for name in SERVING {
        let files = &hot.files[&Key::secret(KAS, name)];
        let pair = ["tls.crt", "tls.key"].map(|name| files.path(name).display().to_string());
        arguments.push(format!("--tls-sni-cert-key={}", pair.join(",")));
    }
    arguments
}
