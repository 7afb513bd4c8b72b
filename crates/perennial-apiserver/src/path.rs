//! Parses URL paths.

/// The target of a path, as far as it is known without the resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Objects, or one object.
    Objects(Objects),
    /// The resources of a group version: `/apis/apps/v1`.
    GroupVersion {
        /// The group; empty for the core one.
        group: String,
        /// The version.
        version: String,
    },
    /// The versions of a group: `/apis/apps`.
    Group(String),
    /// `/apis`.
    Groups,
    /// `/api`.
    CoreVersions,
    /// Everything else: `/version`, `/openapi/v3/…`, `/livez`.
    Other(String),
}

/// A path of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    /// The group; empty for the core one.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural of the resource.
    pub plural: String,
    /// The namespace, if the path has one.
    pub namespace: Option<String>,
    /// The name, if the path is that of one object.
    pub name: Option<String>,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
}

impl Target {
    /// Parses a path.
    pub fn parse(path: &str) -> Target {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let owned = |text: &str| text.to_owned();
        match parts.as_slice() {
            ["api"] => Target::CoreVersions,
            ["apis"] => Target::Groups,
            ["apis", group] => Target::Group(owned(group)),
            ["api", version] => Target::GroupVersion { group: String::new(), version: owned(version) },
            ["apis", group, version] => Target::GroupVersion { group: owned(group), version: owned(version) },
            ["api", version, rest @ ..] => objects("", version, rest).unwrap_or_else(|| Target::Other(owned(path))),
            ["apis", group, version, rest @ ..] => {
                objects(group, version, rest).unwrap_or_else(|| Target::Other(owned(path)))
            }
            _ => Target::Other(owned(path)),
        }
    }
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    // `namespaces` is both a resource and a part of other paths.
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(name), None),
        [plural, name, subresource] => (plural, Some(name), Some(subresource)),
        _ => return None,
    };
    let owned = |text: &&str| (*text).to_owned();
    Some(Target::Objects(Objects {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: owned(plural),
        namespace: namespace.map(|namespace| namespace.to_owned()),
        name: name.map(owned),
        subresource: subresource.map(owned),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, group: &str, namespace: &str, plural: &str, name: &str, subresource: &str) {
        let Target::Objects(found) = Target::parse(path) else { panic!("{path} is about no objects") };
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let found = (
            found.group.clone(),
            text(&found.namespace),
            found.plural.clone(),
            text(&found.name),
            text(&found.subresource),
        );
        let expected = [group, namespace, plural, name, subresource].map(ToOwned::to_owned);
        assert_eq!([found.0, found.1, found.2, found.3, found.4], expected, "{path}");
    }

    #[test]
    fn paths_of_objects_are_parsed() {
        check("/api/v1/secrets", "", "", "secrets", "", "");
        check("/api/v1/namespaces", "", "", "namespaces", "", "");
        check("/api/v1/namespaces/shop", "", "", "namespaces", "shop", "");
        check("/api/v1/namespaces/shop/status", "", "", "namespaces", "shop", "status");
        check("/api/v1/namespaces/shop/secrets", "", "shop", "secrets", "", "");
        check("/api/v1/namespaces/shop/secrets/web", "", "shop", "secrets", "web", "");
        check("/apis/apps/v1/namespaces/shop/deployments/web/status", "apps", "shop", "deployments", "web", "status");
        check("/apis/config.openshift.io/v1/pkis/cluster", "config.openshift.io", "", "pkis", "cluster", "");
    }

    #[test]
    fn paths_of_discovery_are_parsed() {
        assert_eq!(Target::parse("/api"), Target::CoreVersions);
        assert_eq!(Target::parse("/apis"), Target::Groups);
        assert_eq!(Target::parse("/apis/apps"), Target::Group("apps".to_owned()));
        let apps = Target::GroupVersion { group: "apps".to_owned(), version: "v1".to_owned() };
        assert_eq!(Target::parse("/apis/apps/v1"), apps);
        assert_eq!(Target::parse("/version"), Target::Other("/version".to_owned()));
        assert_eq!(Target::parse("/api/v1/a/b/c/d/e"), Target::Other("/api/v1/a/b/c/d/e".to_owned()));
    }
}
