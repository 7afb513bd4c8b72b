//! Reads a cluster into a snapshot. Nothing is written, and no private key is kept.

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
use crate::cluster::{self, ClusterState};
use crate::describe;
use crate::key_policy::PolicyObject;
use crate::library::Library;
use crate::objects::{ObjectRef, Objects};
use crate::pass::Clock;
use crate::read::{self, FoundBundle, FoundSecret};
use crate::server_clock::ServerClock;
use crate::service_ca;
use crate::serving::Index;

/// How many objects are read at once.
const AT_ONCE: usize = 8;
/// How many Services come with one answer.
const PAGE: u32 = 500;

/// How a cluster is looked at.
#[derive(Debug, Clone)]
pub struct View {
    /// What somebody asked for.
    pub settings: Settings,
    /// The DNS domain of Services.
    pub service_domain: String,
    /// Which Services are looked at.
    pub services: Services,
    /// Whether objects are read that have nothing to do with any component that is kept.
    pub reads_unrelated: bool,
    /// The API server's clock, where ours is compared with it.
    pub server_clock: Option<Arc<ServerClock>>,
    /// The earliest that it may be, where no other clock can be asked.
    pub earliest: Option<Earliest>,
}

/// The earliest instant that it may be by a clock that no wrong setting has moved ahead.
#[derive(Clone)]
pub struct Earliest(pub Clock);

impl std::fmt::Debug for Earliest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Earliest({})", (self.0)())
    }
}

/// Which of the Services that ask for a certificate are looked at.
#[derive(Debug, Clone)]
pub enum Services {
    /// Each of them, now.
    All,
    /// A few that stand for all, as somebody knows them who watches all.
    Few(Arc<Index>),
}

/// What was found.
#[derive(Debug)]
pub struct Observation {
    /// Everything that a decision may know.
    pub snapshot: Snapshot,
    /// The certificates themselves.
    pub library: Library,
    /// The versions of the objects on which decisions rest.
    pub objects: Objects,
    /// The resource that the key policy comes from.
    pub policy_object: PolicyObject,
    /// How long a day of rotation should be, where somebody asks for that: for developers, and nobody heeds it.
    pub rotation_base: Option<String>,
    /// What somebody should look at.
    pub problems: Vec<Problem>,
    /// A Secret that was read a moment ago and is about to be written.
    pub(crate) read: Option<ReadSecret>,
}

/// A Secret with its keys, of which nothing is printed.
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
    /// True if the certificates of a row are read. A role cannot name the Secrets of nodes, so the operator does without those of
    /// components that it does not keep: no write of its own can change who trusts them.
    fn reads(&self, row: &Row) -> bool {
        self.reads_unrelated || row.scope != Scope::Node || self.settings.manages(row.component)
    }

    /// The components whose objects are read.
    fn components(&self, catalog: &Catalog) -> BTreeSet<Component> {
        let all = catalog.rows.iter().map(|row| row.component);
        if self.reads_unrelated { all.collect() } else { related(catalog, |it| self.settings.manages(it)) }
    }
}

/// The components that are kept, and every other that has something to do with them.
pub(crate) fn related(catalog: &Catalog, is_managed: impl Fn(Component) -> bool) -> BTreeSet<Component> {
    catalog.related(catalog.operated(is_managed))
}

/// Certificates and annotations know whole seconds.
pub(crate) fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Looks at everything that the catalog names, as far as the view reads it.
pub async fn observe(client: &Client, wiring: &Wiring<'_>, view: &View, now: Timestamp) -> Result<Observation, Error> {
    let components = view.components(wiring.catalog);
    let ClusterState { facts, nodes, feature_gate, policy, policy_object, rotation_base, problems } =
        cluster::read(client, &view.service_domain, components.contains(&Component::KubeApiserver)).await?;
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
        // Our own clock may have been set since the look began, and the answers have told what time it is.
        snapshot.clock_skew_seconds = clock.skew_seconds();
        snapshot.taken_at = whole_second(clock.now());
    }
    snapshot.not_earlier_than = view.earliest.as_ref().map(|it| whole_second((it.0)()));
    snapshot.distrusted = std::mem::take(&mut gathered.distrusted);
    snapshot.reloads = std::mem::take(&mut gathered.reloads);
    snapshot.asked = asked(wiring, &snapshot, std::mem::take(&mut gathered.asked));
    Ok(Observation { policy_object, rotation_base, ..gathered.finish(snapshot, problems) })
}

/// The Services that ask for a certificate.
async fn services(
    client: &Client,
    view: &View,
    problems: &mut Vec<Problem>,
) -> Result<Observed<BTreeMap<Slot, Service>>, Error> {
    if !view.settings.manages(Component::ServiceCa) {
        return Ok(Observed::Unknown { why: service_ca::NOT_KEPT.to_owned() });
    }
    Ok(match &view.services {
        Services::Few(index) => {
            problems.extend(index.problems().into_iter().map(|text| Problem { namespace: None, text }));
            match index.representatives() {
                Some(found) => Observed::Present(found),
                None => Observed::Unknown { why: "the operator has not looked at every Service yet".to_owned() },
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

/// Every Service that asks and may ask, by the Secret that it asks for; where several ask for the same, the first.
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

/// The resources of operators that matter where these components are kept: each that is kept, and each other that Perennial keeps by
/// default and that has something to do with them.
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

/// How requests name the resource of an operator.
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

/// The one object of a kind of which there is no more than one; none where it is not there, or where the server does not know the
/// kind: then nobody has made one. A server says that without a word that a program could read, so the code counts.
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

/// What a server says about one object; none where it says nothing, because it cannot be reached.
pub(crate) fn said(error: Error) -> Result<String, Error> {
    match error {
        Error::Api(_) | Error::SerdeError(_) => Ok(brief(&error)),
        error => Err(error),
    }
}

/// Where a certificate is read: for a file of the installation the Secret that carried it into the cluster.
fn secret_place(wiring: &Wiring<'_>, slot: &Slot) -> Option<Slot> {
    if !slot.is_file() {
        return Some(slot.clone());
    }
    match wiring.row(slot.key())?.row.home {
        Home::Files { secret: Some(object), .. } => Some(Slot::tls(&object.of(&Instance::Cluster))),
        _ => None,
    }
}

/// Where a bundle is read: for a file of the installation the ConfigMap that carried it into the cluster.
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

/// The objects of these names: each is there or not, or the server does not say. It is an error if that is so of all, where there are
/// several: of one alone, it says nothing about the others of its kind.
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

/// Places that hold what they should, and whose labels and annotations are not as we would set them.
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

/// Returns the rotations that somebody asks for, of certificates where they are issued: on a copy, a request means nothing.
fn asked(wiring: &Wiring<'_>, snapshot: &Snapshot, written: BTreeMap<Slot, String>) -> BTreeMap<Slot, String> {
    let rows = wiring.catalog.rows.iter().filter(|row| row.day == Day::Two);
    let homes: BTreeSet<Slot> =
        rows.flat_map(|row| instances(row, snapshot).into_iter().map(|it| wiring.home(row, &it))).collect();
    written.into_iter().filter(|(slot, _)| homes.contains(slot)).collect()
}

/// What was read, before it is known who signed whom.
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
    /// When all of this was read.
    now: Timestamp,
}

impl Gathered {
    /// What a Secret holds for a slot, under a key of its own or of the file that it came from.
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

    /// What a Secret holds for a Service, if it is that Service's.
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

    /// What the service CA or its bundle says about the reloads of its clients and servers.
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

    /// The snapshot with all of it, and who signed whom.
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
    let certificate = known.get(&trust::id(&found.certificate)).expect("every certificate was kept").clone();
    let superseded = found.memory.superseded.iter().filter_map(|past| {
        let mut ids = ids(&past.certificates).into_iter();
        Some(Superseded {
            certificate: ids.next()?,
            chain: ids.collect(),
            at: past.at,
            lag_override: past.lag_override,
        })
    });
    // Whatever else is kept beside it is not trusted for that.
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
        // As a plan writes it down: a set.
        members.sort();
    }
    let mut published = read::published(found, key);
    published.retain(|id, _| members.contains(id));
    BundleState { members, damage: found.damage.clone(), is_canonical: found.is_canonical, published }
}
