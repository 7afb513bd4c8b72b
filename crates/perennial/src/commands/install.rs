//! `perennial install`: every certificate, key, kubeconfig and manifest of a new cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use perennial_api::install_config::{self, InstallConfig};
use perennial_core::catalog::{ClusterFacts, Condition, Home, TimeScale};
use perennial_core::install::{self, InstallPlan, PlannedCertificate};
use perennial_core::issuance::Circumstances;
use perennial_core::policy::{Category, Policy};
use perennial_core::spec::Host;
use perennial_core::warning::KeyWarning;
use zeroize::Zeroizing;

use crate::Outcome;
use crate::exit::UsageError;
use crate::install::kubeconfig::{self, Parts};
use crate::install::manifests::{self, TlsParts};
use crate::install::metrics::{self, Sample};
use crate::install::staging::{Destination, OutputFile, replace_file};
use crate::install::{Made, make};
use crate::item::{self, CertificateItem};

/// Make every certificate, key, kubeconfig and manifest of a new cluster, without a cluster.
///
/// All signers use the key of `pki.signerCertificates` in the install-config; everything else uses the platform
/// default (RSA 2048), because the running cluster replaces it within a day by what its PKI resource says.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial install --install-config install-config.yaml --out cluster\n  \
    perennial install --install-config install-config.yaml --dry-run\n  \
    perennial install --install-config install-config.yaml --out cluster -o json | jq -r '.items[].name'\n\n\
    What is written:\n  \
    tls/         a certificate and a key each (root-ca's key is discarded), and the CA bundles\n  \
    auth/        kubeconfigs of the administrator and of new nodes\n  \
    manifests/   Secrets, ConfigMaps and the PKI resource, for the new cluster to take over\n  \
    openshift_pki_installer.prom   metrics for node_exporter's textfile collector\n\n\
    The directory appears whole or not at all. Everything that holds a key is readable by its owner only.")]
pub(crate) struct Args {
    /// The install-config.yaml of the cluster
    #[arg(long, value_name = "FILE")]
    install_config: PathBuf,

    /// The directory to make; must not exist, or be empty
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,

    /// Also write the metrics to this file, e.g. where node_exporter looks for them
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    metrics_textfile: Option<PathBuf>,

    /// Feature gates, e.g. ConfigurablePKI=false; wins over featureGates of the install-config
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',', value_parser = parse_gate)]
    feature_gates: Vec<(Gate, bool)>,

    /// How many keys to generate at a time
    #[arg(long, value_name = "N", default_value_t = default_threads())]
    keygen_threads: NonZero<usize>,

    /// Print what would be made, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// How to print
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// The feature gates that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gate {
    /// Whether keys can be configured at all. On unless switched off.
    ConfigurablePki,
    /// Shrinks all lifetimes, for tests and rehearsals. Off unless switched on.
    ShortCertRotation,
}

const METRICS_FILE: &str = "openshift_pki_installer.prom";

/// Makes them.
pub(crate) fn run(args: &Args, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let (config, doubts) = read_config(&args.install_config)?;
    let gates = gates(args, &config);
    let policy = policy(&config, &gates)?;
    let scale = if gates[&Gate::ShortCertRotation] { TimeScale::SHORT } else { TimeScale::FULL };
    let cluster = cluster_facts(&config);
    let circumstances = Circumstances { cluster: &cluster, policy: &policy, now, scale };
    let plan = install::plan(&circumstances, &conditions(&config))
        .with_context(|| format!("{} is not enough", args.install_config.display()))?;
    warn(&doubts, &plan)?;

    let items: Vec<CertificateItem> = plan.certificates.iter().map(|planned| item(&plan, planned)).collect();
    if let (Some(directory), false) = (&args.out, args.dry_run) {
        let destination = Destination::check(directory)?;
        let made = make(&plan, args.keygen_threads)?;
        let samples: Vec<Sample> = made.iter().map(sample).collect();
        let metrics = metrics::render(&samples);
        let mut files = files(&config, &plan, &made, now)?;
        if gates[&Gate::ConfigurablePki] {
            files.push(OutputFile::public("manifests/cluster-pki.yaml", manifests::pki(&policy)?));
        }
        files.push(OutputFile::public(METRICS_FILE, metrics.clone()));
        destination.write(&files)?;
        if let Some(path) = &args.metrics_textfile {
            replace_file(path, &metrics)
                .with_context(|| format!("{} is complete, but its metrics were not copied", directory.display()))?;
        }
    }
    match args.output {
        Format::Json => item::print_json(&items, out)?,
        Format::Table => item::print_table(&items, out)?,
    }
    report(args, &plan)?;
    Ok(Outcome::Done)
}

fn read_config(path: &Path) -> anyhow::Result<(InstallConfig, Vec<install_config::Warning>)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    install_config::parse(&text).with_context(|| format!("{} is refused", path.display()))
}

fn default_threads() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

fn gates(args: &Args, config: &InstallConfig) -> BTreeMap<Gate, bool> {
    let mut gates = BTreeMap::from([(Gate::ConfigurablePki, true), (Gate::ShortCertRotation, false)]);
    let configured = config.feature_gates.iter().filter_map(|(name, &on)| Gate::from_name(name).map(|gate| (gate, on)));
    gates.extend(configured);
    gates.extend(args.feature_gates.iter().copied());
    gates
}

/// The policy of the new cluster, as far as an install-config can say it: its signers.
fn policy(config: &InstallConfig, gates: &BTreeMap<Gate, bool>) -> anyhow::Result<Policy> {
    let Some(key) = config.signer_key else { return Ok(Policy::default()) };
    if !gates[&Gate::ConfigurablePki] {
        bail!("pki: Forbidden: the feature gate ConfigurablePKI is off; remove pki, or switch the gate on");
    }
    Ok(Policy { categories: BTreeMap::from([(Category::Signer, key)]), ..Policy::default() })
}

fn cluster_facts(config: &InstallConfig) -> ClusterFacts {
    let domain = config.cluster_domain();
    ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::Dns(format!("api.{domain}"))),
        api_internal: Some(Host::Dns(format!("api-int.{domain}"))),
        service_networks: config.service_network.clone(),
        api_vips: config.platform.api_vips.clone(),
        bootstrap_provisioning: config.platform.bootstrap_provisioning_ip,
    }
}

fn conditions(config: &InstallConfig) -> BTreeSet<Condition> {
    (config.platform.name == "baremetal").then_some(Condition::BareMetal).into_iter().collect()
}

/// Where a certificate ends up, below the output directory.
fn paths(plan: &InstallPlan, planned: &PlannedCertificate) -> Vec<String> {
    let name = planned.row.certificate;
    let mut paths = vec![format!("tls/{name}.crt")];
    if planned.keep_key {
        paths.push(format!("tls/{name}.key"));
    }
    if let Home::Files { kubeconfig: Some(kubeconfig), .. } = planned.row.home {
        paths.push(format!("auth/{}", kubeconfig.file));
    }
    let secrets = plan.secrets.iter().filter(|secret| secret.row.id == planned.row.id);
    paths.extend(secrets.map(|secret| manifests::path("secret", secret.object)));
    paths
}

fn item(plan: &InstallPlan, planned: &PlannedCertificate) -> CertificateItem {
    let spec = &planned.issuance.spec;
    let (algorithm, key_size, curve) = CertificateItem::key(spec.key);
    CertificateItem {
        name: planned.row.certificate.to_owned(),
        category: planned.row.logical().category,
        algorithm,
        key_size,
        curve,
        signer: planned.signer_name().to_owned(),
        not_before: spec.validity.not_before,
        not_after: spec.validity.not_after,
        policy_source: planned.issuance.source,
        files: paths(plan, planned),
    }
}

fn sample(made: &Made<'_>) -> Sample {
    Sample { row: made.planned.row, key: made.planned.issuance.spec.key, duration: made.duration }
}

/// Every file but metrics and the PKI resource.
fn files(
    config: &InstallConfig,
    plan: &InstallPlan,
    made: &[Made<'_>],
    now: Timestamp,
) -> anyhow::Result<Vec<OutputFile>> {
    let find = |id: &str| made.iter().find(|made| made.planned.row.id == id).expect("the plan is consistent");
    let bundle_pem = |members: &[&str]| -> String { members.iter().map(|id| find(id).certificate.to_pem()).collect() };

    let mut files = Vec::new();
    for made in made {
        let name = made.planned.row.certificate;
        files.push(OutputFile::public(format!("tls/{name}.crt"), made.chain_pem.clone()));
        if made.planned.keep_key {
            files.push(OutputFile::secret(format!("tls/{name}.key"), bytes(&made.key.to_pem()?)));
        }
    }
    for bundle in &plan.bundles {
        files.push(OutputFile::public(format!("tls/{}.crt", bundle.stem), bundle_pem(&bundle.members)));
    }
    for planned in &plan.kubeconfigs {
        let made = find(planned.row.id);
        let bundle = plan.bundles.iter().find(|bundle| bundle.id == planned.kubeconfig.bundle);
        let parts = Parts {
            cluster: &config.cluster_name,
            server: &planned.server,
            bundle_pem: &bundle_pem(&bundle.expect("the catalog has the kubeconfig's bundle").members),
            user: planned.kubeconfig.user,
            certificate_pem: &made.chain_pem,
        };
        let content = kubeconfig::render(&parts, &made.key.to_pem()?)?;
        files.push(OutputFile::secret(format!("auth/{}", planned.kubeconfig.file), content));
    }
    for planned in &plan.secrets {
        let made = find(planned.row.id);
        let parts = TlsParts {
            certificate_pem: &made.chain_pem,
            validity: made.planned.issuance.spec.validity,
            issuer: &find(made.planned.row.signer_row().id).planned.issuance.spec.subject.common_name,
            issued_at: now,
        };
        let content = manifests::secret(planned, &parts, &made.key.to_pem()?)?;
        files.push(OutputFile::secret(manifests::path("secret", planned.object), content));
    }
    for planned in &plan.config_maps {
        let content = manifests::config_map(planned, &bundle_pem(&planned.members))?;
        files.push(OutputFile::public(manifests::path("configmap", planned.place.object), content));
    }
    Ok(files)
}

fn bytes(text: &Zeroizing<String>) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.as_bytes().to_vec())
}

fn warn(doubts: &[install_config::Warning], plan: &InstallPlan) -> io::Result<()> {
    let err = &mut io::stderr().lock();
    for warning in doubts {
        writeln!(err, "warning: {warning}")?;
    }
    // By far the most common warning is the same for a dozen certificates: once is enough.
    let weak: Vec<&str> = plan
        .warnings
        .iter()
        .filter_map(|warning| match warning {
            KeyWarning::WeakForItsLife { certificate, .. } => Some(certificate.as_str()),
            KeyWarning::StrongerThanSigner { .. } => None,
        })
        .collect();
    if !weak.is_empty() {
        writeln!(err, "warning: RSA 2048 is weak for certificates that live ten years: {}", weak.join(", "))?;
    }
    for warning in plan.warnings.iter().filter(|warning| matches!(warning, KeyWarning::StrongerThanSigner { .. })) {
        writeln!(err, "warning: {warning}")?;
    }
    Ok(())
}

fn report(args: &Args, plan: &InstallPlan) -> io::Result<()> {
    let err = &mut io::stderr().lock();
    for (row, condition) in &plan.left_out {
        writeln!(err, "left out: {} (only for: {condition})", row.certificate)?;
    }
    let count = plan.certificates.len();
    match &args.out {
        Some(directory) if !args.dry_run => {
            writeln!(err, "{count} certificates written to {}; the key of root-ca was discarded", directory.display())
        }
        _ => writeln!(err, "{count} certificates would be made; nothing was written"),
    }
}

fn parse_gate(text: &str) -> Result<(Gate, bool), UsageError> {
    let wrong = || UsageError("accepted are ConfigurablePKI=true|false and ShortCertRotation=true|false".to_owned());
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let on = value.parse().map_err(|_| wrong())?;
    Ok((Gate::from_name(name).ok_or_else(wrong)?, on))
}

impl Gate {
    fn from_name(name: &str) -> Option<Gate> {
        match name {
            "ConfigurablePKI" => Some(Gate::ConfigurablePki),
            "ShortCertRotation" => Some(Gate::ShortCertRotation),
            _ => None,
        }
    }
}
