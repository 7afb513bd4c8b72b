//! A real kube-apiserver with a real etcd, on loopback, in its own directory, for the time of a test; and optionally
//! controllers of a real kube-controller-manager.
//!
//! A start takes some seconds of all processors. `ControlPlane::lease` therefore reuses the servers of earlier tests of the same
//! nextest run and resets them; `ControlPlane::start` is for tests that need servers of their own.

mod controllers;
mod door;
mod etcd_keys;
mod lease;
mod parts;
mod process;
mod reset;
mod supervisor;

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube_client::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{ToolError, tools};
use controllers::Controllers;
pub use door::Door;
use lease::Lease;
pub use lease::ServerPool;
pub use parts::{ApiServer, Etcd};
use process::{Port, Process};

/// A control plane: etcd and a kube-apiserver, with only an administrator and the started controllers.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: processes end before their directory is removed.
    controllers: Option<Controllers>,
    servers: Servers,
    config: Kubeconfig,
    /// The kubeconfigs, the files of the controllers, and those of own servers.
    dir: TempDir,
}

/// The servers of a control plane.
#[derive(Debug)]
enum Servers {
    /// Processes that end with the control plane.
    Own { api_server: Process, etcd: Process, _ports: [Port; 3] },
    /// Processes that later tests use again.
    Leased(Lease),
}

/// Why a control plane could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A program or a file is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// There is no free port.
    #[error("failed to reserve a port on loopback")]
    Port(#[source] io::Error),
    /// A program ended before it was ready.
    #[error("{program} ended with {status} before it was ready; it wrote:\n{log}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// A program was not ready in time.
    #[error("{program} was not ready after {} s; it answered {answer:?} and wrote:\n{log}", READY_WITHIN.as_secs())]
    NotReady {
        /// The program.
        program: &'static str,
        /// Its last answer to the readiness check.
        answer: String,
        /// The end of its log.
        log: String,
    },
    /// The client rejects the kubeconfig.
    #[error("failed to create a client")]
    Kubeconfig(#[from] KubeconfigError),
    /// The client rejects the configuration.
    #[error("failed to create a client")]
    Client(#[from] kube_client::Error),
    /// Other users can read or replace the files of leased servers, or the path is no directory.
    #[error("{} is not a directory that only this user can read; remove it", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
    },
    /// The process with which leased servers end does not run.
    #[error("process {process} does not run, so no servers can be leased until it ends")]
    NotRunning {
        /// The process.
        process: u32,
    },
    /// A server that was just started has not the objects that every server has.
    #[error("the state of a new kube-apiserver could not be recorded: {reason}")]
    Baseline {
        /// What is missing or failed.
        reason: String,
    },
}

/// On an idle machine it takes ten seconds.
const READY_WITHIN: Duration = Duration::from_secs(120);

impl ControlPlane {
    /// Starts etcd and a kube-apiserver that only this control plane uses, and waits until the latter is ready.
    ///
    /// For tests that kill, overload, reconfigure or observe the servers themselves; all other tests use `lease`.
    pub async fn start() -> Result<ControlPlane, StartError> {
        let dir = new_directory()?;
        let launch = Launch::prepare(dir.path())?;
        let mut etcd = Process::start(&launch.etcd.program, &launch.etcd.arguments, dir.path().join(ETCD_LOG))?;
        let api_server = &launch.api_server;
        let log = dir.path().join(API_SERVER_LOG);
        let mut api_server = Process::start(&api_server.program, &api_server.arguments, log)?;
        let config = launch.wait_until_ready(dir.path(), &mut etcd, &mut api_server).await?;
        let servers = Servers::Own { api_server, etcd, _ports: launch.ports };
        Ok(ControlPlane { controllers: None, servers, config, dir })
    }

    /// Returns a control plane with only the objects of a new one, on servers that tests of the same nextest run use in turn.
    ///
    /// No other test uses the servers before this process ends. Outside nextest, and if `PERENNIAL_OWN_SERVERS` is 1, this starts
    /// servers as `start` does.
    pub async fn lease() -> Result<ControlPlane, StartError> {
        match ServerPool::of_this_run() {
            Some(pool) => pool.lease().await,
            None => ControlPlane::start().await,
        }
    }

    /// Returns a control plane on leased servers, whose kubeconfigs are in this directory.
    async fn on(lease: Lease) -> Result<ControlPlane, StartError> {
        let dir = new_directory()?;
        // A test may write to its kubeconfig, so it gets a copy.
        for name in [KUBECONFIG, CONTROLLERS_KUBECONFIG] {
            let original = lease.directory().join(name);
            let text = fs::read_to_string(&original).map_err(ToolError::file(&original))?;
            write_private(&dir.path().join(name), &text)?;
        }
        let config = dir.path().join(KUBECONFIG);
        let config = read_kubeconfig(&fs::read_to_string(&config).map_err(ToolError::file(&config))?);
        Ok(ControlPlane { controllers: None, servers: Servers::Leased(lease), config, dir })
    }

    /// Starts a kube-controller-manager with these controllers and no others, such as `garbage-collector-controller`, and waits
    /// until they are there. It ends with the control plane, or where others are started in its place.
    pub async fn start_controllers(&mut self, names: &[&str]) -> Result<(), StartError> {
        // Running controllers end first, so that no two do the same work.
        self.controllers = None;
        self.controllers =
            Some(Controllers::start(self.dir.path(), &self.dir.path().join(CONTROLLERS_KUBECONFIG), names).await?);
        Ok(())
    }

    /// A kubeconfig of the administrator; only its owner can read the file.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join(KUBECONFIG)
    }

    /// A client of the administrator.
    pub async fn client(&self) -> Result<Client, StartError> {
        client(&self.config).await
    }

    /// Returns a client of a service account without its token: the administrator impersonates it.
    pub async fn client_as_account(&self, namespace: &str, name: &str) -> Result<Client, StartError> {
        client(&self.config_of_account(namespace, name)).await
    }

    /// Returns the same client without retries.
    pub async fn client_asking_once_as_account(&self, namespace: &str, name: &str) -> Result<Client, StartError> {
        let mut config = config(&self.config_of_account(namespace, name)).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    fn config_of_account(&self, namespace: &str, name: &str) -> Kubeconfig {
        let mut config = self.config.clone();
        let [all, ours] = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
            user.impersonate = Some(format!("system:serviceaccount:{namespace}:{name}"));
            user.impersonate_groups = Some(vec![all.clone(), ours.clone(), "system:authenticated".to_owned()]);
        }
        config
    }

    /// The last lines that each program wrote, for a test that fails and does not know why.
    pub fn last_words(&self) -> String {
        let controllers = self.controllers.as_ref().map(|it| ("kube-controller-manager", it.last_words()));
        let [api_server, etcd] = match &self.servers {
            Servers::Own { api_server, etcd, .. } => [api_server.last_words(), etcd.last_words()],
            Servers::Leased(lease) => {
                [API_SERVER_LOG, ETCD_LOG].map(|log| process::last_lines(&lease.directory().join(log)))
            }
        };
        let servers = [("kube-apiserver", api_server), ("etcd", etcd)];
        let all = servers.into_iter().chain(controllers).map(|(program, words)| format!("{program}:\n{words}"));
        all.collect::<Vec<_>>().join("\n")
    }
}

/// The kubeconfig of the administrator, and that of the kube-controller-manager.
const KUBECONFIG: &str = "kubeconfig";
const CONTROLLERS_KUBECONFIG: &str = "controllers.kubeconfig";
const ETCD_LOG: &str = "etcd.log";
const API_SERVER_LOG: &str = "kube-apiserver.log";

fn new_directory() -> Result<TempDir, StartError> {
    let dir = tempfile::Builder::new().prefix("kubernetes-").tempdir();
    Ok(dir.map_err(ToolError::file(&std::env::temp_dir()))?)
}

/// The commands of both servers, and what their clients need.
struct Launch {
    etcd: Invocation,
    api_server: Invocation,
    /// Of etcd for peers, of etcd for clients, and of the kube-apiserver.
    ports: [Port; 3],
    token: String,
    controllers_token: String,
}

struct Invocation {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Launch {
    /// Chooses ports and tokens, and writes the files that the servers read into this directory.
    fn prepare(dir: &Path) -> Result<Launch, StartError> {
        let [etcd, api_server] = [program("etcd")?, program("kube-apiserver")?];
        let reserve = || Port::reserve().map_err(StartError::Port);
        let ports = [reserve()?, reserve()?, reserve()?];
        let [peers, clients, secure] = [ports[0].number(), ports[1].number(), ports[2].number()];
        let [token, controllers_token] = [random_token()?, random_token()?];
        let tokens = format!(
            "{token},admin,admin,system:masters\n\
             {controllers_token},system:kube-controller-manager,system:kube-controller-manager\n"
        );
        write_private(&dir.join("tokens"), &tokens)?;
        make_key(&dir.join("service-accounts.key"))?;
        let etcd = Invocation { program: etcd, arguments: etcd_arguments(dir, peers, clients) };
        let api_server = Invocation { program: api_server, arguments: api_server_arguments(dir, clients, secure) };
        Ok(Launch { etcd, api_server, ports, token, controllers_token })
    }

    /// Waits until the kube-apiserver is ready, writes the kubeconfigs, and returns that of the administrator.
    async fn wait_until_ready(
        &self,
        dir: &Path,
        etcd: &mut dyn Program,
        api_server: &mut dyn Program,
    ) -> Result<Kubeconfig, StartError> {
        let port = self.ports[2].number();
        let config = wait_until_ready(dir, port, &self.token, etcd, api_server).await?;
        let credentials = Credentials { user: "controllers", token: Some(&self.controllers_token) };
        let controllers = kubeconfig(port, &serving_certificate(dir)?, credentials);
        write_kubeconfig(&dir.join(CONTROLLERS_KUBECONFIG), &controllers)?;
        Ok(config)
    }
}

/// A program that may end before it is ready.
trait Program {
    /// Returns the exit status of the program, if the program has exited.
    fn ended(&mut self) -> io::Result<Option<ExitStatus>>;

    /// Returns the last lines of the output of the program.
    fn last_words(&self) -> String;
}

/// A program of the control plane, such as `kubectl`: from `$KUBEBUILDER_ASSETS` if it has all of them, else as
/// `make tools` built it.
pub fn program(name: &str) -> Result<PathBuf, ToolError> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let dir = match assets.filter(|dir| PROGRAMS.iter().all(|program| dir.join(program).is_file())) {
        Some(assets) => assets,
        None => {
            let versions = ["k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"].map(required);
            tools::cache_dir()?.join(format!("tools/kubernetes-{}-etcd-{}", versions[0], versions[1]))
        }
    };
    let file = dir.join(name);
    if file.is_file() { Ok(file) } else { Err(ToolError::Missing { tool: file.display().to_string() }) }
}

/// What `tools/ensure` builds.
const PROGRAMS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

/// The version of a module that `tools/ensure` builds from.
fn required(module: &str) -> &'static str {
    let lines = include_str!("../../../tools/kubernetes/go.mod").lines();
    let mut versions = lines.filter_map(|line| line.trim().strip_prefix(module)?.trim().strip_prefix('v'));
    versions.next().expect("go.mod requires what is built from it").split_whitespace().next().unwrap_or_default()
}

fn etcd_arguments(dir: &Path, peers: u16, clients: u16) -> Vec<String> {
    let [peers, clients] = [peers, clients].map(|port| format!("http://127.0.0.1:{port}"));
    etcd_arguments_at(dir, &peers, &clients)
}

fn etcd_arguments_at(dir: &Path, peers: &str, clients: &str) -> Vec<String> {
    vec![
        format!("--data-dir={}", dir.join("etcd").display()),
        "--name=it".into(),
        format!("--initial-cluster=it={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--listen-peer-urls={peers}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-client-urls={clients}"),
        "--socket-reuse-port".into(),
        // Nothing here has to survive a loss of power.
        "--unsafe-no-fsync".into(),
    ]
}

fn api_server_arguments(dir: &Path, etcd: u16, secure: u16) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={secure}"),
        "--permit-port-sharing".into(),
        format!("--cert-dir={}", file("serving")),
        format!("--token-auth-file={}", file("tokens")),
        "--authorization-mode=RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("service-accounts.key")),
        format!("--service-account-signing-key-file={}", file("service-accounts.key")),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        // There is only one API server, so it does not reconcile the endpoints of others.
        "--endpoint-reconciler-type=none".into(),
    ]
}

/// Waits until the server is ready, and writes the kubeconfig as soon as the server has created its certificate.
async fn wait_until_ready(
    dir: &Path,
    port: u16,
    token: &str,
    etcd: &mut dyn Program,
    api_server: &mut dyn Program,
) -> Result<Kubeconfig, StartError> {
    ask_until_ready(&mut [("etcd", etcd), ("kube-apiserver", api_server)], async || {
        // The server writes its certificate before its key.
        if !dir.join("serving/apiserver.key").is_file() {
            return Ok(Err("nothing".to_owned()));
        }
        let credentials = Credentials { user: "admin", token: Some(token) };
        let config = kubeconfig(port, &serving_certificate(dir)?, credentials);
        let config = write_kubeconfig(&dir.join(KUBECONFIG), &config)?;
        let answer = fetch(&client(&config).await?, "/readyz").await;
        Ok(answer.and_then(|text| if text == "ok" { Ok(config) } else { Err(text) }))
    })
    .await
}

/// Asks until the answer is good, for as long as all these programs run. The last one is the one that is asked.
async fn ask_until_ready<T>(
    programs: &mut [(&'static str, &mut dyn Program)],
    mut ask: impl AsyncFnMut() -> Result<Result<T, String>, StartError>,
) -> Result<T, StartError> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut answer = "nothing".to_owned();
    while Instant::now() < deadline {
        for (program, process) in &mut *programs {
            if let Some(status) = process.ended().map_err(ToolError::file(Path::new(program)))? {
                return Err(StartError::Ended { program, status, log: process.last_words() });
            }
        }
        match ask().await? {
            Ok(ready) => return Ok(ready),
            Err(other) => answer = other,
        }
        sleep(Duration::from_millis(100)).await;
    }
    let (program, process) = programs.last().expect("somebody is asked");
    Err(StartError::NotReady { program, answer, log: process.last_words() })
}

/// What is served under a path, or why nothing is.
async fn fetch(client: &Client, path: &str) -> Result<String, String> {
    let request = http::Request::get(path).body(Vec::new()).expect("this is a request");
    client.request_text(request).await.map_err(|error| tools::error_chain(&error))
}

/// A client that talks to our server and to nothing else, whatever proxy this machine has.
async fn client(kubeconfig: &Kubeconfig) -> Result<Client, StartError> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

async fn config(kubeconfig: &Kubeconfig) -> Result<Config, StartError> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(config)
}

/// As whom a client presents itself, and what proves it.
struct Credentials<'a> {
    user: &'a str,
    token: Option<&'a str>,
}

/// Returns the certificate that the kube-apiserver created for itself.
fn serving_certificate(dir: &Path) -> Result<Vec<u8>, ToolError> {
    let certificate = dir.join("serving/apiserver.crt");
    fs::read(&certificate).map_err(ToolError::file(&certificate))
}

/// A kubeconfig for a server on this port of loopback.
fn kubeconfig(port: u16, authority: &[u8], Credentials { user, token }: Credentials<'_>) -> String {
    let secret = token.map_or_else(|| json!({}), |token| json!({"token": token}));
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": user,
        "contexts": [{"name": user, "context": {"cluster": "it", "user": user}}],
        "clusters": [{"name": "it", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": user, "user": secret}],
    })
    .to_string()
}

fn write_kubeconfig(path: &Path, text: &str) -> Result<Kubeconfig, ToolError> {
    write_private(path, text)?;
    Ok(read_kubeconfig(text))
}

fn read_kubeconfig(text: &str) -> Kubeconfig {
    Kubeconfig::from_yaml(text).expect("a kubeconfig that we wrote can be read")
}

/// A file that only its owner can read.
fn write_private(path: &Path, text: &str) -> Result<(), ToolError> {
    let write = || {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    write().map_err(ToolError::file(path))
}

/// The key that service account tokens are signed with.
fn make_key(path: &Path) -> Result<(), ToolError> {
    let mut openssl = Command::new("openssl");
    // In SEC1, since the server is to take the public key from it, too, which it does not from PKCS#8.
    openssl.args(["ecparam", "-name", "prime256v1", "-genkey", "-noout"]);
    write_private(path, &tools::ask(&mut openssl, b"")?)
}

/// Everybody on this machine can reach loopback, but only we know this.
fn random_token() -> Result<String, ToolError> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(ToolError::file(source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_how_to_install_it() {
        let error = program("no-such-program").unwrap_err().to_string();
        assert!(error.ends_with("/no-such-program is not installed; install it with `make tools`"), "{error}");
    }

    #[test]
    fn versions_come_from_the_module_that_is_built() {
        assert!(required("k8s.io/kubernetes").starts_with("1."));
        assert!(required("go.etcd.io/etcd/server/v3").starts_with("3."));
    }

    #[tokio::test]
    async fn a_program_that_ends_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let shell = |script: &str, log: &str| {
            let arguments = ["-c".to_owned(), script.to_owned()];
            Process::start(Path::new("/bin/sh"), &arguments, dir.path().join(log)).unwrap()
        };
        let mut lasting = shell("exec sleep 600", "lasting.log");
        let mut failing = shell("echo what it said >&2; exit 3", "failing.log");
        let error = wait_until_ready(dir.path(), 1, "", &mut lasting, &mut failing).await.unwrap_err();
        let expected = "kube-apiserver ended with exit status: 3 before it was ready; it wrote:\nwhat it said";
        assert_eq!(error.to_string(), expected);
    }
}
