//! The certificates of the embedded API server itself: rows of the catalog, as Secrets and ConfigMaps in its own store.
//!
//! It serves with the API server's certificate for localhost, and the kubeconfig that it writes has the administrator's
//! certificate on a node. Until a controller rotates them, they are renewed here when their time has come.

use anyhow::Context;
use base64::prelude::{BASE64_STANDARD, Engine};
use jiff::Timestamp;
use perennial_api::annotations::{DESCRIPTION, ISSUED_AT, ISSUER, NOT_AFTER, NOT_BEFORE, OWNING_COMPONENT};
use perennial_api::pki;
use perennial_apiserver::api::Api;
use perennial_apiserver::path::Objects;
use perennial_apiserver::status::Reason;
use perennial_core::catalog::{
    BundleHome, BundleInput, Catalog, ClusterFacts, ConfigMapKey, Instance, Object, Row, Succession, TimeScale,
};
use perennial_core::issuance::Circumstances;
use perennial_core::policy::Policy;
use perennial_core::spec::CertificateSpec;
use perennial_x509::{Bundle, Certificate, Issuer, PrivateKey, issue, read_certificates, self_signed, signed_by};
use serde_json::{Value, json};

use super::cluster::{at, options};

/// A leaf with its key, and what it is trusted by.
#[derive(Debug)]
pub(crate) struct Credential {
    /// The leaf.
    pub(crate) certificate: Certificate,
    /// Its key.
    pub(crate) key: PrivateKey,
    /// Its signers, earlier ones too.
    pub(crate) trusted_by: Bundle,
    /// When it should be renewed.
    pub(crate) refresh_at: Timestamp,
}

/// Who the server is, and who its administrator is.
#[derive(Debug)]
pub(crate) struct Identity {
    /// What the server presents.
    pub(crate) server: Credential,
    /// What the kubeconfig presents.
    pub(crate) admin: Credential,
}

const SERVING: &str = "localhost-serving-cert-certkey";
const ADMIN: &str = "node-system-admin-client";

impl Identity {
    /// Reads the certificates, and makes those that are absent, damaged or due.
    pub(crate) async fn ensure(api: &Api, now: Timestamp) -> anyhow::Result<Identity> {
        let policy = policy(api)?;
        let maker = Maker { api, policy: &policy, now };
        Ok(Identity { server: maker.credential(SERVING).await?, admin: maker.credential(ADMIN).await? })
    }

    /// When the first of them should be renewed.
    pub(crate) fn refresh_at(&self) -> Timestamp {
        self.server.refresh_at.min(self.admin.refresh_at)
    }
}

/// The cluster's key policy. An administrator's mistake must not keep the server from starting.
fn policy(api: &Api) -> anyhow::Result<Policy> {
    let object = api.get(&at(pki::GROUP, pki::PLURAL, pki::NAME));
    Ok(object.ok().and_then(|object| pki::parse_value(object).ok()).map(|(_, policy)| policy).unwrap_or_default())
}

/// A certificate with its key, as a Secret has it.
struct Held {
    certificate: Certificate,
    key: PrivateKey,
}

struct Maker<'a> {
    api: &'a Api,
    policy: &'a Policy,
    now: Timestamp,
}

impl Maker<'_> {
    async fn credential(&self, id: &str) -> anyhow::Result<Credential> {
        let catalog = Catalog::builtin();
        let row = catalog.row(id).context("the catalog has no such row")?;
        let signer_row = catalog.signer_of(row).context("the row has no signer")?;
        let signer = match self.read(signer_row)?.filter(|held| is_valid(&held.certificate, self.now)) {
            Some(held) => held,
            None => self.make(signer_row, None).await?,
        };
        let trusted_by = self.publish(signer_row, &signer.certificate).await?;
        let spec = self.spec(row, Some(&signer))?;
        let is_good = |held: &Held| {
            let facts = held.certificate.facts();
            is_valid(&held.certificate, self.now)
                && facts.hosts == spec.hosts
                && signed_by(&held.certificate, &signer.certificate)
                && self.now < refresh_at(row, &held.certificate)
        };
        let held = match self.read(row)?.filter(is_good) {
            Some(held) => held,
            None => self.make(row, Some(&signer)).await?,
        };
        let refresh_at = refresh_at(row, &held.certificate);
        Ok(Credential { certificate: held.certificate, key: held.key, trusted_by, refresh_at })
    }

    /// What a row's Secret holds; none where it is absent or damaged.
    fn read(&self, row: &Row) -> anyhow::Result<Option<Held>> {
        let secret = match self.api.get(&secret_at(row)?) {
            Ok(secret) => secret,
            Err(error) if error.reason == Reason::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let part = |key: &str| BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok();
        let read = || {
            let certificate = read_certificates(&part("tls.crt")?).ok()?.into_iter().next()?;
            let key = PrivateKey::from_pem(&part("tls.key")?).ok()?;
            key.matches(&certificate).then_some(Held { certificate, key })
        };
        Ok(read())
    }

    fn spec(&self, row: &Row, signer: Option<&Held>) -> anyhow::Result<CertificateSpec> {
        // These rows name nothing that a cluster could say about itself.
        let cluster = ClusterFacts {
            service_domain: "cluster.local".to_owned(),
            api_external: None,
            api_internal: None,
            service_networks: Vec::new(),
            api_vips: Vec::new(),
            bootstrap_provisioning: None,
        };
        let circumstances = Circumstances {
            catalog: Catalog::builtin(),
            cluster: &cluster,
            policy: self.policy,
            now: self.now,
            scale: TimeScale::FULL,
        };
        let signer = signer.map(|signer| signer.certificate.facts().validity);
        Ok(circumstances.issue(row, &Instance::Cluster, signer)?.spec)
    }

    async fn make(&self, row: &Row, signer: Option<&Held>) -> anyhow::Result<Held> {
        let spec = self.spec(row, signer)?;
        let wanted = spec.key;
        let key = tokio::task::spawn_blocking(move || PrivateKey::generate(wanted))
            .await?
            .with_context(|| format!("failed to generate the key of {}", row.certificate))?;
        let certificate = match signer {
            None => self_signed(&spec, &key)?,
            Some(signer) => issue(&spec, key.public_key(), &Issuer::new(&signer.certificate, &signer.key)?)?,
        };
        let secret = tls_secret(row, &certificate, &key, self.now)?;
        self.put(&secret_at(row)?, secret).await?;
        Ok(Held { certificate, key })
    }

    /// The bundle of a signer with this certificate in it, which is written where it is new.
    async fn publish(&self, signer: &Row, certificate: &Certificate) -> anyhow::Result<Bundle> {
        let place = history_of(signer)?;
        let at = object_at("configmaps", place.object);
        let found = self.api.get(&at).ok();
        let text = found.as_ref().and_then(|map| map["data"][place.key].as_str()).unwrap_or_default();
        let (kept, _) = Bundle::salvage(text.as_bytes());
        let mut bundle: Bundle = kept.into_iter().filter(|old| is_valid(old, self.now)).collect();
        if bundle.push(certificate.clone()) || bundle.to_pem() != text {
            let annotations = json!({(OWNING_COMPONENT): signer.component.owner(), (DESCRIPTION): "CA bundle"});
            let data = json!({(place.key): bundle.to_pem()});
            let map = json!({"metadata": {"name": place.object.name, "annotations": annotations}, "data": data});
            self.put(&at, map).await?;
        }
        Ok(bundle)
    }

    async fn put(&self, at: &Objects, wanted: Value) -> anyhow::Result<()> {
        let failed = || format!("failed to write {} {}", at.plural, at.name.as_deref().unwrap_or_default());
        if self.api.get(at).is_err() {
            let whole = Objects { name: None, ..at.clone() };
            self.api.create(&whole, wanted, &options()).await.with_context(failed)?;
        } else {
            self.api.merge(at, &wanted, &options()).await.with_context(failed)?;
        }
        Ok(())
    }
}

fn tls_secret(row: &Row, certificate: &Certificate, key: &PrivateKey, now: Timestamp) -> anyhow::Result<Value> {
    let object = Catalog::builtin().secret_of(row).context("the row has no Secret")?;
    let facts = certificate.facts();
    let issued_at = Timestamp::from_second(now.as_second())?;
    let purpose = Catalog::builtin().logical(row).purpose;
    Ok(json!({
        "metadata": {
            "name": object.name,
            "annotations": {
                (OWNING_COMPONENT): row.component.owner(),
                (DESCRIPTION): purpose,
                (NOT_BEFORE): facts.validity.not_before.to_string(),
                (NOT_AFTER): facts.validity.not_after.to_string(),
                (ISSUER): facts.issuer.common_name().unwrap_or_default(),
                (ISSUED_AT): issued_at.to_string(),
            }
        },
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": BASE64_STANDARD.encode(certificate.to_pem()),
            "tls.key": BASE64_STANDARD.encode(key.to_pem()?.as_bytes()),
        }
    }))
}

fn is_valid(certificate: &Certificate, now: Timestamp) -> bool {
    certificate.facts().validity.contains(now)
}

/// When the row's refresh time has passed, and no later than at four fifths of its life, as the signer may have cut it.
fn refresh_at(row: &Row, certificate: &Certificate) -> Timestamp {
    let validity = certificate.facts().validity;
    let fifth = validity.not_before.duration_until(validity.not_after) / 5;
    let latest = validity.not_after.saturating_sub(fifth).unwrap_or(validity.not_after);
    match row.succession {
        Succession::Refresh(after) => {
            latest.min(validity.not_before.saturating_add(after.scaled(TimeScale::FULL)).unwrap_or(latest))
        }
        _ => latest,
    }
}

/// The bundle with every certificate of a signer, and nothing else.
fn history_of(signer: &Row) -> anyhow::Result<ConfigMapKey> {
    let bundles = Catalog::builtin().bundles.iter();
    let mut own = bundles.filter(|bundle| bundle.inputs == [BundleInput::History(signer.id)]);
    match own.next().map(|bundle| bundle.home) {
        Some(BundleHome::ConfigMap(place)) => Ok(place),
        _ => anyhow::bail!("{} has no bundle of its own", signer.id),
    }
}

fn secret_at(row: &Row) -> anyhow::Result<Objects> {
    Ok(object_at("secrets", Catalog::builtin().secret_of(row).context("the row has no Secret")?))
}

fn object_at(plural: &str, object: Object) -> Objects {
    Objects { namespace: Some(object.namespace.to_owned()), ..at("", plural, object.name) }
}
