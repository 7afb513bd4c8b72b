//! Writes objects: only in the version that was decided about, and without touching what others put there.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube_client::{Api, Error};
use perennial_api::annotations::{STAGED_FOR, STAGED_UID};
use perennial_core::catalog::ObjectName;
use perennial_core::rules::Observed;

use super::{ActError, Actor};
use crate::objects::{ObjectRef, Objects};
use crate::observe::{Observation, Trouble};
use crate::{FIELD_MANAGER, brief};

/// The type of a Secret with a certificate and its key.
pub(crate) const TLS: &str = "kubernetes.io/tls";
/// The type of a Secret with anything in it.
pub(super) const OPAQUE: &str = "Opaque";

/// The label of Secrets that stand in for one that is being replaced.
const STAGED: &str = "perennial.dev/staged";

/// Whoever replaces a Secret has deleted it by then, or never will: a server gives up a request after a minute. A copy that stayed
/// would bring back a key that somebody destroys later by deleting its Secret.
const ABANDONED_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Replacements of Secrets that may have been interrupted and are not finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Namespaces in which nobody could look, and why.
    namespaces: BTreeMap<String, String>,
    /// Secrets that stand in another, and why they do still.
    secrets: BTreeMap<ObjectName, String>,
    /// Secrets that are there, and of which there is a copy that somebody may be about to need. Nothing is wrong with that yet.
    copied: BTreeSet<ObjectName>,
}

/// What became of a replacement that may have been interrupted.
enum Finished {
    /// The Secret was made again.
    Restored,
    /// It was there, and its copy went.
    Dropped,
    /// It is there, and whoever replaces it may be at it.
    Left,
}

impl Unfinished {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.secrets.is_empty() && self.copied.is_empty()
    }

    /// A Secret that seems to be absent may stand in another: then it is not known what is there.
    pub fn hide(&self, observation: &mut Observation) {
        for (slot, found) in observation.snapshot.secrets.iter_mut().filter(|(_, found)| **found == Observed::Absent) {
            let why = self.namespaces.get(slot.namespace()).or_else(|| self.secrets.get(&slot.object()));
            let Some(why) = why.filter(|_| !slot.is_file()) else { continue };
            *found = Observed::Unknown { why: format!("a replacement may have been interrupted: {why}") };
        }
        let spaces = self.namespaces.iter();
        let spaces = spaces.map(|(space, why)| Trouble::new(space, format!("Secrets in {space}: {why}")));
        let secrets = self
            .secrets
            .iter()
            .map(|(name, why)| Trouble::new(&name.namespace, format!("Secret {name}: its replacement failed: {why}")));
        observation.troubles.extend(spaces.chain(secrets));
    }
}

impl Actor {
    /// A Secret as it is now, if it is as it was looked at; none where there was none.
    pub(super) async fn current_secret(
        &self,
        objects: &Objects,
        object: &ObjectRef,
    ) -> Result<Option<Secret>, ActError> {
        let Some(seen) = objects.get(object) else { return Ok(None) };
        let secret = self.read_secret(object).await?;
        if secret.metadata.resource_version.as_ref() != Some(&seen.resource_version) {
            return Err(ActError::Changed { object: object.clone() });
        }
        Ok(Some(secret))
    }

    /// A ConfigMap as it is now, if it is as it was looked at; none where there was none.
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

    /// Writes a Secret in place of what was found there. Says whether it was not there before.
    pub(super) async fn put_secret(
        &self,
        objects: &mut Objects,
        object: &ObjectRef,
        current: Option<Secret>,
        type_: &str,
        change: impl FnOnce(&mut Secret),
    ) -> Result<bool, ActError> {
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
                    (self.replace_whole(&api, object, secret).await?, false)
                }
            }
        };
        objects.note(object.clone(), &written.metadata);
        Ok(created)
    }

    /// Writes a ConfigMap in place of what was found there. Says whether it was not there before.
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

    /// The type of a Secret cannot be changed, so it is deleted and made again. Its content stands in another Secret
    /// meanwhile: whatever happens between the two, [`Actor::finish_replacements`] can go on from there.
    async fn replace_whole(&self, api: &Api<Secret>, object: &ObjectRef, new: Secret) -> Result<Secret, ActError> {
        let failed = |error| refused(object, error);
        // Somebody else decides when it goes, and meanwhile nothing can take its place.
        if new.metadata.deletion_timestamp.is_some()
            || new.metadata.finalizers.as_ref().is_some_and(|it| !it.is_empty())
        {
            return Err(ActError::Held { object: object.clone() });
        }
        let preconditions =
            Preconditions { uid: new.metadata.uid.clone(), resource_version: new.metadata.resource_version.clone() };
        let uid = new.metadata.uid.clone().unwrap_or_default();
        let staged_name = format!("{}-staged", object.name.name);
        let new = Secret { metadata: fresh(new.metadata), ..new };
        let mut staged =
            Secret { metadata: ObjectMeta { name: Some(staged_name.clone()), ..new.metadata.clone() }, ..new.clone() };
        let annotations = staged.metadata.annotations.get_or_insert_default();
        annotations.insert(STAGED_FOR.to_owned(), object.name.name.clone());
        annotations.insert(STAGED_UID.to_owned(), uid);
        staged.metadata.labels.get_or_insert_default().insert(STAGED.to_owned(), "true".to_owned());
        let staged = match api.create(&parameters(), &staged).await {
            // Left from an attempt that was refused: the object itself is still there, so this is of no use any more.
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
            // It was not we who deleted it, so the copy must not bring it back. Where the answer may have been lost, it is needed.
            if is_refusal(&error) {
                self.drop_staged(api, &staged).await.map_err(failed)?;
            }
            return Err(failed(error));
        }
        let written = api.create(&parameters(), &new).await.map_err(failed)?;
        self.drop_staged(api, &staged).await.map_err(failed)?;
        Ok(written)
    }

    /// Finishes what was interrupted while a Secret was replaced, in these namespaces. Says what was made again, and what could
    /// not be.
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

    /// Finishes one.
    async fn finish_replacement(
        &self,
        api: &Api<Secret>,
        name: &ObjectName,
        staged: &Secret,
    ) -> Result<Finished, Error> {
        let target = api.get_opt(&name.name).await?;
        let uid = staged.metadata.annotations.as_ref().and_then(|it| it.get(STAGED_UID));
        // It was not deleted yet.
        if target.as_ref().is_some_and(|target| target.metadata.uid.as_ref() == uid) && !self.is_abandoned(staged) {
            return Ok(Finished::Left);
        }
        if target.is_none() {
            let mut new = Secret { metadata: fresh(staged.metadata.clone()), ..staged.clone() };
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

    /// Whether nobody can be about to delete what this is a copy of.
    fn is_abandoned(&self, staged: &Secret) -> bool {
        let made = staged.metadata.creation_timestamp.as_ref();
        made.is_none_or(|made| made.0 + ABANDONED_AFTER <= (self.clock)())
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

/// The name of the Secret that another stands in for.
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

/// What a new object takes over from an old one.
fn fresh(old: ObjectMeta) -> ObjectMeta {
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

/// Whether a server says no, and so did nothing: not where it may only have failed to say that it did.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api(status) if (400..500).contains(&status.code) && status.code != 408)
}

/// Somebody was faster, or the server does not take it.
fn refused(object: &ObjectRef, error: Error) -> ActError {
    match error {
        Error::Api(status) if status.is_conflict() || status.is_already_exists() || is_gone(&status) => {
            ActError::Changed { object: object.clone() }
        }
        source => ActError::Write { object: object.clone(), source: Box::new(source) },
    }
}

/// A namespace that is not there is no conflict: nobody will be faster in it.
fn is_gone(status: &kube_client::core::Status) -> bool {
    let kind = status.details.as_ref().map(|details| details.kind.as_str());
    status.is_not_found() && kind != Some("namespaces")
}
