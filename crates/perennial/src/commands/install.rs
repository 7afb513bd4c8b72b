//! `perennial install`: creates every certificate, key, kubeconfig and manifest of a new cluster.

use std::fs;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use perennial_api::feature_gates::FeatureGates;
use perennial_api::install_config::{self, InstallConfig};
use perennial_core::catalog::{Catalog, TimeScale};
use perennial_core::clocks::Clocks;
use perennial_core::install::{self, InstallPlan, PlannedCertificate};
use perennial_core::issuance::Circumstances;
use perennial_core::warning::KeyWarning;

use crate::install::files::files;
use crate::install::make::{Made, make};
use crate::install::manifests;
use crate::install::metrics::{self, Sample};
use crate::install::staging::{Destination, OutputFile, check_replaceable, replace_file};
use crate::item::{self, CertificateItem};
use crate::talk;

/// Create every certificate, key, kubeconfig and manifest of a new cluster
///
/// All signers use the key of `pki.signerCertificates` in the install-config. All other certificates use the platform's default
/// (RSA 2048). Within a day, the running cluster replaces nearly all of them with the keys of its PKI resource.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "perennial install --install-config <FILE> (--out <DIR> | --dry-run) [OPTIONS]",
    after_help = "Examples:\n  \
    perennial install --install-config install-config.yaml --out cluster\n  \
    perennial install --install-config install-config.yaml --dry-run\n  \
    perennial install --install-config install-config.yaml --out cluster -o json | jq -r '.items[].name'\n\n\
    Content of the directory:\n  \
    tls/         certificates and keys (the key of root-ca is discarded), and the CA bundles\n  \
    auth/        kubeconfigs of the administrator and of new nodes\n  \
    manifests/   Secrets, ConfigMaps and the PKI resource of the new cluster\n  \
    openshift_pki_installer.prom   metrics for node_exporter's textfile collector\n\n\
    The directory appears complete or not at all. Only the owner can read files with a key."
)]
pub(crate) struct Args {
    /// The install-config.yaml of the cluster
    #[arg(long, value_name = "FILE")]
    install_config: PathBuf,

    /// The output directory; must be absent or empty
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,

    /// Also write the metrics to this file, such as a file in the textfile directory of node_exporter
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    metrics_textfile: Option<PathBuf>,

    /// Feature gates, such as ConfigurablePKI=false; overrides featureGates of the install-config
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',', value_parser = parse_gate)]
    feature_gates: Vec<(String, bool)>,

    /// How many keys to generate at once
    #[arg(long, value_name = "N", default_value_t = default_threads())]
    keygen_threads: NonZero<usize>,

    /// Print the certificates, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// The output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

const METRICS_FILE: &str = "openshift_pki_installer.prom";

/// Runs the installation.
pub(crate) fn run(args: &Args, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<()> {
    let (config, warnings) = read_config(&args.install_config)?;
    let unusable = || format!("cannot use {}", args.install_config.display());
    let mut gates = config.gates();
    for (name, on) in &args.feature_gates {
        gates.set(name, *on);
    }
    let policy = config.policy(gates).with_context(unusable)?;
    let cluster = config.cluster_facts();
    let catalog = Catalog::builtin();
    let scale = if gates.short_cert_rotation { TimeScale::SHORT } else { TimeScale::FULL };
    let circumstances = Circumstances { catalog, cluster: &cluster, policy: &policy, clocks: Clocks::one(now), scale };
    let plan = install::plan(&circumstances, &config.conditions()).with_context(unusable)?;
    warnings.iter().for_each(|warning| talk::line(format_args!("warning: {warning}")));
    warn(&plan);

    let outcome = match &args.out {
        Some(directory) if !args.dry_run => {
            let destination = prepare(args, directory)?;
            let made = make(&plan, args.keygen_threads)?;
            let mut files = files(catalog, &config.cluster_name, &plan, &made, now)?;
            if gates.configurable_pki {
                files.push(OutputFile::public("manifests/cluster-pki.yaml", manifests::pki(&policy)?));
            }
            let metrics = metrics::render(catalog, &made.iter().map(sample).collect::<Vec<_>>());
            files.push(OutputFile::public(METRICS_FILE, metrics.clone()));
            destination.write(&files)?;
            if let Some(path) = &args.metrics_textfile {
                replace_file(path, &metrics).with_context(|| format!("{} is complete", directory.display()))?;
            }
            format!("written to {}", directory.display())
        }
        _ => "planned, nothing written".to_owned(),
    };

    let items: Vec<CertificateItem> = plan.certificates.iter().map(|planned| item(catalog, &plan, planned)).collect();
    let printed = match args.output {
        Format::Json => item::print_json(&items, out),
        Format::Table => item::print_table(&items, out),
    };
    report(&plan, &outcome);
    printed.context("failed to print the list of certificates")
}

fn read_config(path: &Path) -> anyhow::Result<(InstallConfig, Vec<install_config::Warning>)> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    install_config::parse(&text).with_context(|| format!("cannot use {}", path.display()))
}

fn default_threads() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Checks that all files can be written, before the generation of keys.
fn prepare(args: &Args, directory: &Path) -> anyhow::Result<Destination> {
    let destination = Destination::prepare(directory)?;
    if let Some(path) = &args.metrics_textfile {
        check_replaceable(path)?;
        let same =
            |other: &Path| fs::canonicalize(path).ok().is_some_and(|path| fs::canonicalize(other).ok() == Some(path));
        if destination.contains(path) {
            bail!("{} is inside {}, which has its own {METRICS_FILE}", path.display(), directory.display());
        }
        if same(&args.install_config) {
            bail!("{} is the install-config", path.display());
        }
    }
    Ok(destination)
}

fn item(catalog: &Catalog, plan: &InstallPlan<'_>, planned: &PlannedCertificate<'_>) -> CertificateItem {
    let spec = &planned.issuance.spec;
    let (algorithm, key_size, curve) = CertificateItem::key(spec.key);
    CertificateItem {
        name: planned.row.certificate.to_owned(),
        category: catalog.logical(planned.row).category,
        algorithm,
        key_size,
        curve,
        signer: planned.signer_name().to_owned(),
        not_before: spec.validity.not_before,
        not_after: spec.validity.not_after,
        policy_source: planned.issuance.source,
        files: plan.files_of(planned),
    }
}

fn sample<'a>(made: &Made<'a>) -> Sample<'a> {
    Sample { row: made.planned.row, key: made.planned.issuance.spec.key, duration: made.duration }
}

/// Prints the warnings of the plan, with one line for all certificates with a weak key.
fn warn(plan: &InstallPlan<'_>) {
    let mut weak = Vec::new();
    for warning in &plan.warnings {
        match warning {
            KeyWarning::WeakForItsValidity { certificate, .. } => weak.push(certificate.as_str()),
            other => talk::line(format_args!("warning: {other}")),
        }
    }
    if !weak.is_empty() {
        talk::line(format_args!(
            "warning: RSA 2048 is weak for certificates that are valid for ten years: {}",
            weak.join(", ")
        ));
    }
}

fn report(plan: &InstallPlan<'_>, outcome: &str) {
    let left_out: Vec<String> =
        plan.left_out.iter().map(|(row, condition)| format!("{} ({condition})", row.certificate)).collect();
    if !left_out.is_empty() {
        talk::line(format_args!("not needed for this kind of installation: {}", left_out.join(", ")));
    }
    let forgotten: Vec<&str> = plan.forgotten_keys().collect();
    talk::line(format_args!(
        "{} certificates {outcome}; discarded keys: {}",
        plan.certificates.len(),
        forgotten.join(", ")
    ));
}

fn parse_gate(text: &str) -> Result<(String, bool), String> {
    let accepted = || {
        let names = FeatureGates::NAMES.map(|name| format!("{name}=true|false"));
        format!("accepted are {}", names.join(" and "))
    };
    let (name, value) = text.split_once('=').ok_or_else(accepted)?;
    let on = value.parse().map_err(|_| accepted())?;
    if FeatureGates::default().set(name, on) { Ok((name.to_owned(), on)) } else { Err(accepted()) }
}
