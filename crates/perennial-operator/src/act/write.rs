//! Writes Secrets and ConfigMaps, only in the resource version that the planner saw. Data and metadata of other writers stay.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube_client::{Api, Error};
use perennial_api::annotations::{STAGED_FOR, STAGED_UID};
use perennial_core::catalog::ObjectName;
use perennial_core::clocks::shifted;
use perennial_core::description::SecretType;
use perennial_core::plan::Step;
use perennial_core::snapshot::Observed;

use super::{ActError, Actor};
use crate::objects::{ObjectRef, Objects};
use crate::observe::{Observation, Problem};
use crate::{FIELD_MANAGER, brief};

/// The label of staged Secrets. A staged Secret holds the content of a Secret that Perennial deletes and creates again.
const STAGED: &str = "perennial.dev/staged";

/// The age at which a staged Secret is of no use while its target still exists.
///
/// By then, the operator that staged it has deleted the target or never will: a server ends a request after a minute. A staged Secret
/// that stays would restore a key that a person destroys later by deleting the target.
const ABANDONED_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Replacements of Secrets that may have been interrupted and are not complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Namespaces whose staged Secrets could not be listed, and why.
    namespaces: BTreeMap<String, String>,
    /// Targets that could not be created from their staged Secret, and why.
    secrets: BTreeMap<ObjectName, String>,
    /// Targets that exist and have a young staged Secret, which another replica may be about to use.
    copied: BTreeSet<ObjectName>,
}

/// The result of completing an interrupted replacement.
enum Finished {
    /// The target was created again.
    Restored,
    /// The target exists; the staged Secret was deleted.
    Dropped,
    /// The target exists, and another replica may be replacing it now.
    Left,
}

impl Unfinished {
    /// True if no replacement is incomplete.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.secrets.is_empty() && self.copied.is_empty()
    }

    /// Marks absent Secrets as unknown if a staged Secret may hold their content, and reports the failed replacements.
    pub fn hide(&self, observation: &mut Observation) {
        for (slot, found) in observation.snapshot.secrets.iter_mut().filter(|(_, found)| **found == Observed::Absent) {
            let why = self.namespaces.get(slot.namespace()).or_else(|| self.secrets.get(&slot.object()));
            let Some(why) = why.filter(|_| !slot.is_file()) else { continue };
            *found = Observed::Unknown { why: format!("a replacement may have been interrupted: {why}") };
        }
        let spaces = self.namespaces.iter();
        let spaces = spaces
            .map(|(space, why)| Problem::new(space, format!("failed to list the staged Secrets in {space}: {why}")));
        let secrets = self.secrets.iter().map(|(name, why)| {
            Problem::new(&name.namespace, format!("failed to create Secret {name} again after its deletion: {why}"))
        });
        observation.problems.extend(spaces.chain(secrets));
    }
}

impl Actor {
    /// Reads a Secret, and fails if it has changed since the observation. None if there was no Secret.
    pub(super) async fn current_secret(
        &self,
        observation: &mut Observation,
        object: &ObjectRef,
    ) -> Result<Option<Secret>, ActError> {
        let read = observation.read.take().map(|read| read.0);
        let Some(seen) = observation.objects.get(object) else { return Ok(None) };
        let is_it = |read: &Secret| {
            let ObjectMeta { namespace, name, .. } = &read.metadata;
            (namespace.as_ref(), name.as_ref()) == (Some(&object.name.namespace), Some(&object.name.name))
        };
        let secret = match read.filter(is_it) {
            Some(read) => read,
            None => self.read_secret(object).await?,
        };
        if secret.metadata.resource_version.as_ref() != Some(&seen.resource_version) {
            return Err(ActError::Changed { object: object.clone() });
        }
        Ok(Some(secret))
    }

    /// Reads a ConfigMap, and fails if it has changed since the observation. None if there was no ConfigMap.
    pub(super) async fn current_config_map(
        &self,
        objects: &Objects,
        object: &ObjectRef,
    ) -> Result<Option<ConfigMap>, ActError> {
        let Some(seen) = objects.get(object) else { return Ok(None) };
        let found = self.config_maps(object).get_opt(&object.name.name).await;
        let found = found.map_err(|source| ActError::Read { object: object.clone(), source: Box::new(source) })?;
        let same = |map: &ConfigMap| map.metadata.resource_version.as_ref() == Some(&seen.resource_version);
        let map = found.filter(same).ok_or_else(|| ActError::Changed { object: object.clone() })?;
        Ok(Some(map))
    }

    /// Creates or updates a Secret. Returns true if it did not exist.
    pub(super) async fn put_secret(
        &self,
        objects: &mut Objects,
        object: &ObjectRef,
        current: Option<Secret>,
        step: &Step,
        change: impl FnOnce(&mut Secret),
    ) -> Result<bool, ActError> {
        let type_ = step.description.secret_type.unwrap_or(SecretType::Opaque).as_str();
        let api = Api::<Secret>::namespaced(self.client.clone(), &object.name.namespace);
        let failed = |error| refused(object, error);
        let (written, created) = match current {
            None => {
                let metadata = named(&object.name);
                let mut new = Secret { metadata, type_: Some(type_.to_owned()), ..Secret::default() };
                change(&mut new);
                (api.create(&parameters(), &new).await.map_err(failed)?, true)
            }
            Some(mut secret) => {
                change(&mut secret);
                if secret.type_.as_deref() == Some(type_) {
                    (api.replace(&object.name.name, &parameters(), &secret).await.map_err(failed)?, false)
                } else {
                    secret.type_ = Some(type_.to_owned());
                    (self.delete_and_create(&api, object, secret).await?, false)
                }
            }
        };
        objects.note(object.clone(), &written.metadata);
        Ok(created)
    }

    /// Creates or updates a ConfigMap. Returns true if it did not exist.
    pub(super) async fn put_config_map(
        &self,
        objects: &mut Objects,
        object: &ObjectRef,
        current: Option<ConfigMap>,
        change: impl FnOnce(&mut ConfigMap),
    ) -> Result<bool, ActError> {
        let api = self.config_maps(object);
        let created = current.is_none();
        let mut map = current.unwrap_or_else(|| ConfigMap { metadata: named(&object.name), ..ConfigMap::default() });
        change(&mut map);
        let written = if created {
            api.create(&parameters(), &map).await
        } else {
            api.replace(&object.name.name, &parameters(), &map).await
        };
        let written = written.map_err(|error| refused(object, error))?;
        objects.note(object.clone(), &written.metadata);
        Ok(created)
    }

    fn config_maps(&self, object: &ObjectRef) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &object.name.namespace)
    }

    /// Deletes a Secret and creates it again with another type, because the type of a Secret is immutable.
    ///
    /// A staged Secret holds the content meanwhile. If the operator stops between the two writes, [`Actor::finish_replacements`] completes
    /// the replacement.
    async fn delete_and_create(&self, api: &Api<Secret>, object: &ObjectRef, new: Secret) -> Result<Secret, ActError> {
        let failed = |error| refused(object, error);
        // Until another controller removes the finalizers, no object of this name can be created.
        if new.metadata.deletion_timestamp.is_some()
            || new.metadata.finalizers.as_ref().is_some_and(|it| !it.is_empty())
        {
            return Err(ActError::Held { object: object.clone() });
        }
        let preconditions =
            Preconditions { uid: new.metadata.uid.clone(), resource_version: new.metadata.resource_version.clone() };
        let uid = new.metadata.uid.clone().unwrap_or_default();
        let staged_name = format!("{}-staged", object.name.name);
        let new = Secret { metadata: metadata_of_successor(new.metadata), ..new };
        let mut staged =
            Secret { metadata: ObjectMeta { name: Some(staged_name.clone()), ..new.metadata.clone() }, ..new.clone() };
        let annotations = staged.metadata.annotations.get_or_insert_default();
        annotations.insert(STAGED_FOR.to_owned(), object.name.name.clone());
        annotations.insert(STAGED_UID.to_owned(), uid);
        staged.metadata.labels.get_or_insert_default().insert(STAGED.to_owned(), "true".to_owned());
        let staged = match api.create(&parameters(), &staged).await {
            // A failed attempt left this staged Secret. The target still exists, so the staged Secret is of no use.
            Err(Error::Api(status)) if status.is_already_exists() => {
                let left = api.get(&staged_name).await.map_err(failed)?;
                if staged_for(&left) != Some(&object.name.name) {
                    let name = ObjectName { namespace: object.name.namespace.clone(), name: staged_name };
                    return Err(ActError::Held { object: ObjectRef::secret(name) });
                }
                self.drop_staged(api, &left).await.map_err(failed)?;
                api.create(&parameters(), &staged).await.map_err(failed)?
            }
            created => created.map_err(failed)?,
        };
        let exactly = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        if let Err(error) = api.delete(&object.name.name, &exactly).await {
            // If another client deleted the target, the staged Secret must not restore it. If the answer was lost, it is needed.
            if is_refusal(&error) {
                self.drop_staged(api, &staged).await.map_err(failed)?;
            }
            return Err(failed(error));
        }
        let written = api.create(&parameters(), &new).await.map_err(failed)?;
        self.drop_staged(api, &staged).await.map_err(failed)?;
        Ok(written)
    }

    /// Completes interrupted replacements of Secrets in these namespaces.
    ///
    /// Returns the Secrets that it created again, and the replacements that are still incomplete.
    pub async fn finish_replacements(&self, namespaces: BTreeSet<&str>) -> (Vec<ObjectRef>, Unfinished) {
        let (mut finished, mut unfinished) = (Vec::new(), Unfinished::default());
        for namespace in namespaces {
            let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
            let all = match api.list(&ListParams::default().labels(&format!("{STAGED}=true"))).await {
                Ok(all) => all,
                Err(error) => {
                    unfinished.namespaces.insert(namespace.to_owned(), brief(&error));
                    continue;
                }
            };
            for staged in all {
                let Some(name) = staged_for(&staged).cloned() else { continue };
                let name = ObjectName { namespace: namespace.to_owned(), name };
                match self.finish_replacement(&api, &name, &staged).await {
                    Ok(Finished::Restored) => finished.push(ObjectRef::secret(name)),
                    Ok(Finished::Dropped) => {}
                    Ok(Finished::Left) => drop(unfinished.copied.insert(name)),
                    Err(error) => drop(unfinished.secrets.insert(name, brief(&error))),
                }
            }
        }
        (finished, unfinished)
    }

    /// Completes one replacement.
    async fn finish_replacement(
        &self,
        api: &Api<Secret>,
        name: &ObjectName,
        staged: &Secret,
    ) -> Result<Finished, Error> {
        let target = api.get_opt(&name.name).await?;
        let uid = staged.metadata.annotations.as_ref().and_then(|it| it.get(STAGED_UID));
        // The target is not deleted yet.
        if target.as_ref().is_some_and(|target| target.metadata.uid.as_ref() == uid) && !self.is_abandoned(staged) {
            return Ok(Finished::Left);
        }
        if target.is_none() {
            let mut new = Secret { metadata: metadata_of_successor(staged.metadata.clone()), ..staged.clone() };
            new.metadata.name = Some(name.name.clone());
            let annotations = new.metadata.annotations.get_or_insert_default();
            annotations.remove(STAGED_FOR);
            annotations.remove(STAGED_UID);
            new.metadata.labels.get_or_insert_default().remove(STAGED);
            api.create(&parameters(), &new).await?;
        }
        self.drop_staged(api, staged).await?;
        Ok(if target.is_none() { Finished::Restored } else { Finished::Dropped })
    }

    /// True if no replica can still be about to delete the target of this staged Secret.
    fn is_abandoned(&self, staged: &Secret) -> bool {
        let made = staged.metadata.creation_timestamp.as_ref();
        made.is_none_or(|made| shifted(made.0, ABANDONED_AFTER) <= (self.clock)())
    }

    async fn drop_staged(&self, api: &Api<Secret>, staged: &Secret) -> Result<(), Error> {
        let name = staged.metadata.name.clone().unwrap_or_default();
        let preconditions = Preconditions { uid: staged.metadata.uid.clone(), resource_version: None };
        let exactly = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(&name, &exactly).await {
            Err(Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}

/// Returns the name of the target of a staged Secret.
fn staged_for(staged: &Secret) -> Option<&String> {
    staged.metadata.labels.as_ref()?.get(STAGED)?;
    staged.metadata.annotations.as_ref()?.get(STAGED_FOR)
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn named(name: &ObjectName) -> ObjectMeta {
    ObjectMeta { name: Some(name.name.clone()), namespace: Some(name.namespace.clone()), ..ObjectMeta::default() }
}

/// Returns the metadata of a new object that replaces this one.
fn metadata_of_successor(old: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: old.name,
        namespace: old.namespace,
        labels: old.labels,
        annotations: old.annotations,
        owner_references: old.owner_references,
        finalizers: old.finalizers,
        ..ObjectMeta::default()
    }
}

/// True if the server rejected the request, so nothing was written. False if only the answer may be lost.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api(status) if (400..500).contains(&status.code) && status.code != 408)
}

/// Returns the error of a rejected write: another client was faster, or the server does not accept the object.
fn refused(object: &ObjectRef, error: Error) -> ActError {
    match error {
        Error::Api(status) if status.is_conflict() || status.is_already_exists() || is_gone(&status) => {
            ActError::Changed { object: object.clone() }
        }
        source => ActError::Write { object: object.clone(), source: Box::new(source) },
    }
}

/// True if the object is gone, which is a conflict. A missing namespace is none.
fn is_gone(status: &kube_client::core::Status) -> bool {
    let kind = status.details.as_ref().map(|details| details.kind.as_str());
    status.is_not_found() && kind != Some("namespaces")
}
