//! Reads a cluster into a snapshot. It writes nothing, and keeps no private key in memory.

mod held;
mod writers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service as KubeService};
use kube_client::api::{ApiResource, ListParams};
use kube_client::{Api, Client, Error, ResourceExt};
use perennial_core::catalog::index::{Wiring, instances};
use perennial_core::catalog::{
    BundleHome, COMPONENTS, Catalog, Component, ComponentRow, Day, Home, Instance, ObjectName, OperatorResource, Row,
    Scope,
};
pub use perennial_core::conditions::Problem;
use perennial_core::description::{Description, SecretType};
use perennial_core::reloads::Reloads;
use perennial_core::serving::{self, Request};
use perennial_core::snapshot::{BundleState, Observed, SecretState, Service, Settings, Slot, Snapshot, Superseded};
use perennial_core::trust::{CertificateId, Certificates, KeyId};
use perennial_x509::{Certificate, trust};

use crate::ask;
use crate::brief;
use crate::cluster::{self, ClusterState, Needs};
use crate::describe;
use crate::key_policy::PolicyObject;
use crate::library::Library;
use crate::objects::{ObjectRef, Objects};
use crate::pass::Clock;
use crate::read::{self, FoundBundle, FoundSecret};
use crate::server_clock::ServerClock;
use crate::service_ca;
use crate::serving::Index;

/// The maximum number of objects that are read at the same time.
const AT_ONCE: usize = 8;
/// The number of Services in one page of a list.
const PAGE: u32 = 500;

/// What to observe, and with which settings.
#[derive(Debug, Clone)]
pub struct View {
    /// The settings of the administrator.
    pub settings: Settings,
    /// The DNS domain of Services.
    pub service_domain: String,
    /// Which Services are observed.
    pub services: Services,
    /// True if objects are read that no managed component depends on.
    pub reads_unrelated: bool,
    /// The API server's clock, if the operator compares its own clock with it.
    pub server_clock: Option<Arc<ServerClock>>,
    /// The earliest possible current time, if there is no other clock to compare with.
    pub earliest: Option<Earliest>,
}

/// A clock that may be behind, but never ahead: it returns the earliest possible current time.
#[derive(Clone)]
pub struct Earliest(pub Clock);

impl std::fmt::Debug for Earliest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Earliest({})", (self.0)())
    }
}

/// Which of the Services that ask for a certificate are observed.
#[derive(Debug, Clone)]
pub enum Services {
    /// Every Service.
    All,
    /// A few Services that represent all others, from the index of the controller that watches all Services.
    Few(Arc<Index>),
}

/// The result of an observation.
#[derive(Debug)]
pub struct Observation {
    /// The input of the planner.
    pub snapshot: Snapshot,
    /// The certificates, by id.
    pub library: Library,
    /// The versions of the observed objects.
    pub objects: Objects,
    /// The resource that the key policy comes from.
    pub policy_object: PolicyObject,
    /// The length of a day that the unsupported ConfigMap for developers requests. Perennial reports it, and does not apply it.
    pub rotation_base: Option<String>,
    /// The problems that an administrator should look at.
    pub problems: Vec<Problem>,
    /// A Secret that was read a moment ago and is about to be written.
    pub(crate) read: Option<ReadSecret>,
}

/// A Secret with its keys. Its `Debug` output has no content.
pub(crate) struct ReadSecret(pub(crate) Secret);

impl std::fmt::Debug for ReadSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadSecret")
    }
}

impl Default for View {
    fn default() -> View {
        View {
            settings: Settings::default(),
            service_domain: "cluster.local".to_owned(),
            services: Services::All,
            reads_unrelated: true,
            server_clock: None,
            earliest: None,
        }
    }
}

impl View {
    /// True if the certificates of a row are read.
    ///
    /// A role cannot name the Secrets of nodes, so the operator reads only those of managed components. The others do not matter to it:
    /// none of its writes changes which clients trust them.
    fn reads(&self, row: &Row) -> bool {
        self.reads_unrelated || row.scope != Scope::Node || self.settings.manages(row.component)
    }

    /// Returns the components whose objects are read.
    fn components(&self, catalog: &Catalog) -> BTreeSet<Component> {
        let all = catalog.rows.iter().map(|row| row.component);
        if self.reads_unrelated { all.collect() } else { related(catalog, |it| self.settings.manages(it)) }
    }
}

/// Returns the managed components, and every component that trusts them or that they trust.
pub(crate) fn related(catalog: &Catalog, is_managed: impl Fn(Component) -> bool) -> BTreeSet<Component> {
    catalog.related(catalog.operated(is_managed))
}

/// Returns the time in whole seconds, as certificates and annotations have it.
pub(crate) fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Reads every object of the catalog that the view includes.
pub async fn observe(client: &Client, wiring: &Wiring<'_>, view: &View, now: Timestamp) -> Result<Observation, Error> {
    let components = view.components(wiring.catalog);
    let has_node_row = |row: &Row| row.scope == Scope::Node && view.settings.manages(row.component);
    let needs = Needs {
        rotation_base: components.contains(&Component::KubeApiserver),
        node_addresses: wiring.catalog.rows.iter().any(has_node_row),
    };
    let ClusterState { facts, nodes, feature_gate, policy, policy_object, rotation_base, problems } =
        cluster::read(client, &view.service_domain, needs).await?;
    let mut problems: Vec<Problem> = problems.into_iter().map(|text| Problem { namespace: None, text }).collect();
    let mut snapshot = Snapshot::empty(wiring, facts, whole_second(now));
    snapshot.settings = view.settings.clone();
    (snapshot.nodes, snapshot.feature_gate, snapshot.policy) = (nodes, feature_gate, policy);
    snapshot.service_ca = service_ca::observe(client, &snapshot.settings, &mut problems).await?;
    problems.extend(service_ca::refused_validity(wiring.catalog, &snapshot));
    snapshot.services = services(client, view, &mut problems).await?;
    snapshot.complete(wiring);

    let mut gathered = Gathered { now: snapshot.taken_at, ..Gathered::default() };
    const UNREAD: &str = "not read, because no component that Perennial manages needs this object";
    let slots = wiring.secret_slots_of(&snapshot, |row| components.contains(&row.component) && view.reads(row));
    let others = wiring.secret_slots(&snapshot).into_iter().filter(|slot| !slots.contains(slot));
    gathered.secrets.extend(others.map(|slot| (slot, Observed::Unknown { why: UNREAD.to_owned() })));
    let places: Vec<(&Slot, Slot)> =
        slots.iter().filter_map(|slot| Some((slot, secret_place(wiring, slot)?))).collect();
    let secrets = read_all::<Secret>(client, places.iter().map(|(_, place)| place.object())).await?;
    for (slot, place) in &places {
        match secrets.get(&place.object()) {
            Some(Ok(Some(secret))) => match snapshot.services.found().get(slot) {
                Some(service) => gathered.serving_secret(slot, secret, service),
                None => gathered.secret(slot, secret, place),
            },
            Some(Err(why)) => drop(gathered.secrets.insert((*slot).clone(), Observed::Unknown { why: why.clone() })),
            Some(Ok(None)) | None => {}
        }
    }
    let slots: BTreeSet<Slot> = wiring.bundle_slots_of(|it| components.contains(&it)).cloned().collect();
    let others = wiring.bundle_slots().filter(|slot| !slots.contains(*slot));
    let unread = |slot: &Slot| (slot.key().to_owned(), Observed::Unknown { why: UNREAD.to_owned() });
    gathered.bundles.extend(others.map(|slot| (slot.clone(), unread(slot))));
    let places = slots.iter().filter_map(|slot| Some((slot, bundle_place(wiring, slot)?)));
    let places: Vec<(&Slot, (ObjectName, String))> = places.collect();
    let maps = read_all::<ConfigMap>(client, places.iter().map(|(_, (object, _))| object.clone())).await?;
    for (slot, (object, key)) in &places {
        match maps.get(object) {
            Some(Ok(Some(map))) => gathered.bundle(slot, map, key),
            Some(Err(why)) => {
                let unknown = Observed::Unknown { why: why.clone() };
                gathered.bundles.insert((*slot).clone(), (key.clone(), unknown));
            }
            Some(Ok(None)) | None => {}
        }
    }
    gathered.undescribed = undescribed(wiring, &snapshot, &gathered, &secrets, &maps);
    let held = held::read(client, wiring, &snapshot, &components, &mut problems).await?;
    gathered.held(held);
    for (object, secret) in secrets {
        let object = ObjectRef::secret(object);
        match secret {
            Ok(found) => found.iter().for_each(|found| gathered.objects.note(object.clone(), &found.metadata)),
            Err(why) => {
                let text = format!("{object} could not be read: {why}");
                problems.push(Problem::new(&object.name.namespace, text));
            }
        }
    }
    for (object, map) in maps {
        let object = ObjectRef::config_map(object);
        match map {
            Ok(found) => found.iter().for_each(|found| gathered.objects.note(object.clone(), &found.metadata)),
            Err(why) => {
                let text = format!("{object} could not be read: {why}");
                problems.push(Problem::new(&object.name.namespace, text));
            }
        }
    }
    if let Some(clock) = &view.server_clock {
        // The operator's clock may have been set since the observation began. The answers of the server have the time.
        snapshot.clock_skew_seconds = clock.skew_seconds();
        snapshot.taken_at = whole_second(clock.now());
    }
    snapshot.not_earlier_than = view.earliest.as_ref().map(|it| whole_second((it.0)()));
    snapshot.distrusted = std::mem::take(&mut gathered.distrusted);
    snapshot.reloads = std::mem::take(&mut gathered.reloads);
    snapshot.asked = asked(wiring, &snapshot, std::mem::take(&mut gathered.asked));
    Ok(Observation { policy_object, rotation_base, ..gathered.finish(snapshot, problems) })
}

/// Returns the Services that ask for a certificate.
async fn services(
    client: &Client,
    view: &View,
    problems: &mut Vec<Problem>,
) -> Result<Observed<BTreeMap<Slot, Service>>, Error> {
    if !view.settings.manages(Component::ServiceCa) {
        return Ok(Observed::Unknown { why: service_ca::NOT_INCLUDED.to_owned() });
    }
    Ok(match &view.services {
        Services::Few(index) => {
            problems.extend(index.problems().into_iter().map(|text| Problem { namespace: None, text }));
            match index.representatives() {
                Some(found) => Observed::Present(found),
                None => Observed::Unknown { why: "the operator has not reconciled every Service yet".to_owned() },
            }
        }
        Services::All => match listed(client, &view.settings).await {
            Ok(found) => Observed::Present(found),
            Err(error) => {
                let why = said(error)?;
                let text = format!("the list of Services could not be read: {why}");
                problems.push(Problem { namespace: None, text });
                Observed::Unknown { why }
            }
        },
    })
}

/// Lists the Services that ask for a certificate and may have one, by Secret. If several ask for the same Secret, the first counts.
async fn listed(client: &Client, settings: &Settings) -> Result<BTreeMap<Slot, Service>, Error> {
    let api = Api::<KubeService>::all(client.clone());
    let mut found = BTreeMap::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        for service in page.items {
            let Some(Ok(request)) = Request::of(service.annotations()) else { continue };
            let name = ObjectName { namespace: service.namespace().unwrap_or_default(), name: request.secret.clone() };
            if settings.reserves(&name.namespace, &service.name_any()) {
                continue;
            }
            let headless = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None");
            let (uid, family) = (service.uid().unwrap_or_default(), request.family);
            let service = Service { name: service.name_any(), headless, uid, family };
            found.entry(Slot::tls(&name)).or_insert(service);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Returns the operator resources to read if these components are managed: their own, and those of related components that Perennial
/// manages by default.
pub(crate) fn operator_resources(
    catalog: &Catalog,
    components: impl IntoIterator<Item = Component>,
) -> impl Iterator<Item = OperatorResource> {
    let components: BTreeSet<Component> = components.into_iter().collect();
    let related = catalog.related(components.iter().copied());
    let matters = move |row: &&ComponentRow| {
        components.contains(&row.component) || (row.is_managed && related.contains(&row.component))
    };
    COMPONENTS.iter().filter(matters).filter_map(|row| row.resource)
}

/// Returns the API resource of an operator.
pub(crate) fn api_resource(resource: &OperatorResource) -> ApiResource {
    let (group, version) = ("operator.openshift.io", "v1");
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: resource.kind.to_owned(),
        plural: resource.plural.to_owned(),
    }
}

/// Returns the only object of a kind; none if the object does not exist, or if the server does not have the kind.
///
/// For a missing kind the server answers 404 without a machine-readable reason, so the status code decides.
pub(crate) async fn single<K>(api: Api<K>, name: &str) -> Result<Option<K>, Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.get(name).await {
        Ok(found) => Ok(Some(found)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the message of the server about one object. Fails if the server did not answer.
pub(crate) fn said(error: Error) -> Result<String, Error> {
    match error {
        Error::Api(_) | Error::SerdeError(_) => Ok(brief(&error)),
        error => Err(error),
    }
}

/// Returns where to read a certificate. A file of the installer is read from the Secret that the installer made of it.
fn secret_place(wiring: &Wiring<'_>, slot: &Slot) -> Option<Slot> {
    if !slot.is_file() {
        return Some(slot.clone());
    }
    match wiring.row(slot.key())?.row.home {
        Home::Files { secret: Some(object), .. } => Some(Slot::tls(&object.of(&Instance::Cluster))),
        _ => None,
    }
}

/// Returns where to read a bundle. A file of the installer is read from the ConfigMap that the installer made of it.
fn bundle_place(wiring: &Wiring<'_>, slot: &Slot) -> Option<(ObjectName, String)> {
    if !slot.is_file() {
        return Some((slot.object(), slot.key().to_owned()));
    }
    match wiring.bundle(slot.key())?.bundle.home {
        BundleHome::File { config_maps: [place, ..], .. } => {
            let slot = Slot::from(*place);
            Some((slot.object(), slot.key().to_owned()))
        }
        _ => None,
    }
}

/// Reads the objects with these names. Each result is the object, none if it does not exist, or the error of the server.
///
/// Fails if the server returns an error for every one of several objects: then the whole kind cannot be read.
async fn read_all<K>(
    client: &Client,
    names: impl Iterator<Item = ObjectName>,
) -> Result<BTreeMap<ObjectName, Result<Option<K>, String>>, Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
    K: kube_client::Resource<Scope = kube_client::core::NamespaceResourceScope, DynamicType = ()>,
{
    let names: BTreeSet<ObjectName> = names.collect();
    let read = |name: ObjectName| async move {
        let found = Api::<K>::namespaced(client.clone(), &name.namespace).get_opt(&name.name).await;
        (name, found)
    };
    let mut results = stream::iter(names).map(read).buffer_unordered(AT_ONCE);
    let (mut found, mut refused) = (BTreeMap::new(), None);
    while let Some((name, result)) = results.next().await {
        let result = match result {
            Ok(result) => Ok(result),
            Err(error @ (Error::Api(_) | Error::SerdeError(_))) => {
                let why = brief(&error);
                refused = Some(error);
                Err(why)
            }
            Err(error) => return Err(error),
        };
        found.insert(name, result);
    }
    match refused {
        Some(error) if found.len() > 1 && found.values().all(Result::is_err) => Err(error),
        _ => Ok(found),
    }
}

/// Returns the places with readable content, but with other labels or annotations than Perennial sets.
fn undescribed(
    wiring: &Wiring<'_>,
    snapshot: &Snapshot,
    gathered: &Gathered,
    secrets: &BTreeMap<ObjectName, Result<Option<Secret>, String>>,
    maps: &BTreeMap<ObjectName, Result<Option<ConfigMap>, String>>,
) -> BTreeSet<Slot> {
    let mut found = BTreeSet::new();
    for (slot, place) in wiring.places(snapshot) {
        let (Some(Observed::Present(it)), Some(Ok(Some(secret)))) =
            (gathered.secrets.get(&slot), secrets.get(&slot.object()))
        else {
            continue;
        };
        let mut wanted = secret.metadata.clone();
        let description = Description::of_place(wiring.catalog, &place, None);
        describe::set(&mut wanted, &description, Some(&it.certificate), None);
        if wanted != secret.metadata {
            found.insert(slot);
        }
    }
    for (slot, (_, bundle)) in &gathered.bundles {
        let (Some(wired), Some(_), Some(Ok(Some(map)))) =
            (wiring.bundle_in(slot), bundle.present(), maps.get(&slot.object()))
        else {
            continue;
        };
        let mut wanted = map.metadata.clone();
        let description = Description::of_bundle(wiring.catalog, Some(wired.bundle));
        describe::set(&mut wanted, &description, None, None);
        if wanted != map.metadata {
            found.insert(slot.clone());
        }
    }
    found
}

/// Returns the requested rotations. A request on a copy of a certificate has no effect.
fn asked(wiring: &Wiring<'_>, snapshot: &Snapshot, written: BTreeMap<Slot, String>) -> BTreeMap<Slot, String> {
    let rows = wiring.catalog.rows.iter().filter(|row| row.day == Day::Two);
    let homes: BTreeSet<Slot> =
        rows.flat_map(|row| instances(row, snapshot).into_iter().map(|it| wiring.home(row, &it))).collect();
    written.into_iter().filter(|(slot, _)| homes.contains(slot)).collect()
}

/// The content of the objects, before the signers of all certificates are known.
#[derive(Default)]
struct Gathered {
    library: Library,
    objects: Objects,
    mistyped: BTreeSet<Slot>,
    undescribed: BTreeSet<Slot>,
    secrets: BTreeMap<Slot, Observed<FoundSecret>>,
    bundles: BTreeMap<Slot, (String, Observed<FoundBundle>)>,
    held: held::Found,
    writers: BTreeMap<Slot, String>,
    asked: BTreeMap<Slot, String>,
    distrusted: BTreeMap<KeyId, Timestamp>,
    reloads: Reloads,
    /// The time of the observation.
    now: Timestamp,
}

impl Gathered {
    /// Adds the content of a Secret. `place` is the slot in which it was read.
    fn secret(&mut self, slot: &Slot, secret: &Secret, place: &Slot) {
        if let Some(writer) = writers::other(&secret.metadata) {
            self.writers.insert(slot.clone(), writer);
        }
        self.asked.extend(ask::asked(secret.annotations()).map(|reason| (slot.clone(), reason.to_owned())));
        let distrusted = ask::distrusted(secret.annotations());
        self.distrusted.extend(distrusted.into_iter().map(|(key, distrust)| (key, distrust.since)));
        self.reloads(slot, secret.annotations(), self.now);
        let found = read::secret(secret, place);
        if let Observed::Present(found) = &found {
            let beside = found.chain.iter().chain(&found.cross_signed_by_earlier).chain(&found.earlier_cross_signed);
            let past = found.memory.superseded.iter().flat_map(|past| &past.certificates);
            self.keep([&found.certificate].into_iter().chain(beside).chain(past));
            if slot.key() == read::TLS_CERT && secret.type_.as_deref() != Some(SecretType::Tls.as_str()) {
                self.mistyped.insert(slot.clone());
            }
        }
        self.secrets.insert(slot.clone(), found);
    }

    /// Adds the content of the Secret of a Service, if the Secret belongs to that Service.
    fn serving_secret(&mut self, slot: &Slot, secret: &Secret, service: &Service) {
        let found = match serving::claim(slot.object_text(), secret.annotations(), &[], &service.uid) {
            Ok(()) => {
                self.asked.extend(ask::asked(secret.annotations()).map(|reason| (slot.clone(), reason.to_owned())));
                read::serving(secret, slot)
            }
            Err(obstacle) => Observed::Unknown { why: obstacle.to_string() },
        };
        if let Observed::Present(found) = &found {
            let past = found.memory.superseded.iter().flat_map(|past| &past.certificates);
            self.keep([&found.certificate].into_iter().chain(&found.chain).chain(past));
        }
        self.secrets.insert(slot.clone(), found);
    }

    fn bundle(&mut self, slot: &Slot, map: &ConfigMap, key: &str) {
        let distrusted = ask::distrusted(map.annotations());
        self.distrusted.extend(distrusted.into_iter().map(|(key, distrust)| (key, distrust.since)));
        self.reloads(slot, map.annotations(), self.now);
        if let Some(writer) = writers::other(&map.metadata) {
            self.writers.insert(slot.clone(), writer);
        }
        let found = read::bundle(map, key);
        if let Observed::Present(found) = &found {
            self.keep(&found.members);
        }
        self.bundles.insert(slot.clone(), (key.to_owned(), found));
    }

    /// Adds the reloads that are recorded on the service CA or on its bundle.
    fn reloads(&mut self, slot: &Slot, annotations: &BTreeMap<String, String>, now: Timestamp) {
        if slot.namespace() == service_ca::NAMESPACE {
            let found = ask::reloads(annotations).until(now);
            self.reloads = std::mem::take(&mut self.reloads).merged(found);
        }
    }

    fn held(&mut self, held: held::Found) {
        self.keep(held.certificates());
        self.held = held;
    }

    fn keep<'a>(&mut self, certificates: impl IntoIterator<Item = &'a Certificate>) {
        for certificate in certificates {
            self.library.add(certificate.clone());
        }
    }

    /// Completes the snapshot: finds the signer of each certificate.
    fn finish(self, mut snapshot: Snapshot, problems: Vec<Problem>) -> Observation {
        let known = trust::facts(self.library.certificates());
        for (slot, found) in self.secrets {
            let state = map(found, |found| secret_state(found, &known));
            snapshot.secrets.insert(slot, state);
        }
        for (slot, (key, found)) in self.bundles {
            snapshot.bundles.insert(slot, map(found, |found| bundle_state(&found, &key)));
        }
        snapshot.held_secrets = self.held.secrets();
        snapshot.held_bundles = self.held.bundles();
        snapshot.other_writers = self.writers;
        snapshot.certificates = known;
        snapshot.mistyped = self.mistyped;
        snapshot.undescribed = self.undescribed;
        let (policy_object, rotation_base) = Default::default();
        let Gathered { library, objects, .. } = self;
        Observation { snapshot, library, objects, policy_object, rotation_base, problems, read: None }
    }
}

fn map<T, U>(found: Observed<T>, present: impl FnOnce(T) -> U) -> Observed<U> {
    match found {
        Observed::Absent => Observed::Absent,
        Observed::Unreadable { why } => Observed::Unreadable { why },
        Observed::Unknown { why } => Observed::Unknown { why },
        Observed::Present(found) => Observed::Present(present(found)),
    }
}

pub(crate) fn secret_state(found: FoundSecret, known: &Certificates) -> SecretState {
    let ids = |certificates: &[Certificate]| certificates.iter().map(trust::id).collect::<Vec<CertificateId>>();
    let certificate =
        known.get(&trust::id(&found.certificate)).expect("every certificate was added to the library").clone();
    let superseded = found.memory.superseded.iter().filter_map(|past| {
        let mut ids = ids(&past.certificates).into_iter();
        Some(Superseded {
            certificate: ids.next()?,
            chain: ids.collect(),
            at: past.at,
            lag_override: past.lag_override,
        })
    });
    // Other certificates under the same data key are not trusted.
    let is_cross_certificate =
        |id: &CertificateId| known.get(id).is_some_and(|it| it.signed_by == Some(certificate.subject.clone()));
    SecretState {
        issued_at: found.memory.issued_at,
        not_after: found.not_after,
        not_before: found.not_before,
        names_issuer: found.names_issuer,
        forced: found.memory.forced.clone(),
        requested: found.memory.requested.clone(),
        chain: ids(&found.chain),
        subject: Some(found.certificate.facts().subject.der().to_vec()),
        cross_signed_by_earlier: ids(&found.cross_signed_by_earlier),
        earlier_cross_signed: found.earlier_cross_signed.iter().map(trust::id).filter(is_cross_certificate).collect(),
        superseded: superseded.collect(),
        issues: found.memory.issues.clone(),
        certificate,
    }
}

fn bundle_state(found: &FoundBundle, key: &str) -> BundleState {
    let mut members: Vec<CertificateId> = found.members.iter().map(trust::id).collect();
    if found.is_canonical {
        // Sorted, as the planner compares sets.
        members.sort();
    }
    let mut published = read::published(found, key);
    published.retain(|id, _| members.contains(id));
    BundleState { members, damage: found.damage.clone(), is_canonical: found.is_canonical, published }
}
