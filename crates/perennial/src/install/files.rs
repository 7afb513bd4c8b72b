//! The content of all files of an installation.

use jiff::Timestamp;
use perennial_core::catalog::Catalog;
use perennial_core::install::InstallPlan;
use zeroize::Zeroizing;

use super::kubeconfig::{self, Parts};
use super::make::{Made, find, pem};
use super::manifests::{self, TlsParts};
use super::staging::OutputFile;

/// Returns the certificates, keys, bundles, kubeconfigs and manifests of the plan.
pub(crate) fn files(
    catalog: &Catalog,
    cluster: &str,
    plan: &InstallPlan<'_>,
    made: &[Made<'_>],
    now: Timestamp,
) -> anyhow::Result<Vec<OutputFile>> {
    let mut files = Vec::new();
    for it in made {
        files.push(OutputFile::public(&it.planned.file, pem(made, &it.planned.chain)));
        if let Some(path) = &it.planned.key_file {
            files.push(OutputFile::secret(path, Zeroizing::new(it.key.to_pem()?.as_bytes().to_vec())));
        }
    }
    for bundle in &plan.bundles {
        files.push(OutputFile::public(&bundle.file, pem(made, &bundle.members)));
    }
    for planned in &plan.kubeconfigs {
        let it = find(made, planned.row.id);
        let parts = Parts {
            cluster,
            server: &planned.server,
            server_name: None,
            bundle_pem: &pem(made, &planned.trusts),
            user: planned.user,
            certificate_pem: &pem(made, &it.planned.chain),
        };
        files.push(OutputFile::secret(&planned.file, kubeconfig::render(&parts, &it.key.to_pem()?)));
    }
    for planned in &plan.secrets {
        let it = find(made, planned.row.id);
        let parts = TlsParts {
            certificate_pem: &pem(made, &it.planned.chain),
            purpose: catalog.logical(planned.row).purpose,
            validity: it.planned.issuance.spec.validity,
            issuer: &it.certificate.facts().issuer.common_name().unwrap_or_default(),
            issued_at: now,
        };
        files.push(OutputFile::secret(&planned.file, manifests::secret(planned, &parts, &it.key.to_pem()?)));
    }
    for planned in &plan.config_maps {
        files.push(OutputFile::public(&planned.file, manifests::config_map(planned, &pem(made, &planned.members))));
    }
    Ok(files)
}
