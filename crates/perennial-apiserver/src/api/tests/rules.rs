//! Tests of validation: what the server rejects, and what it drops with or without a warning.

use super::*;

fn strict() -> WriteOptions {
    WriteOptions { field_validation: FieldValidation::Strict, ..options() }
}

/// Returns an API with a definition of shelves, and their path.
async fn with_shelves() -> (Api, impl Fn(&str) -> Objects) {
    let api = with_namespace().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}
    }}}});
    let definition = fixtures::definition("shelves.shop.test", "Shelf", "Namespaced", &schema);
    api.create(&definitions(""), definition, &options()).await.unwrap();
    (api, |name: &str| Objects { group: "shop.test".to_owned(), ..at("shelves", "shop", name) })
}

fn shelf(metadata: Value) -> Value {
    let mut shelf = json!({"apiVersion": "shop.test/v1", "kind": "Shelf", "spec": {}});
    shelf["metadata"] = metadata;
    shelf
}

#[tokio::test]
async fn unknown_fields_are_rejected_warned_about_or_dropped() {
    let api = with_namespace().await;
    let (maps, one) = (at("configmaps", "shop", ""), at("configmaps", "shop", "a"));
    let odd = json!({"metadata": {"name": "a", "lables": {}}, "dada": {}});
    let why = "strict decoding error: unknown field \"metadata.lables\", unknown field \"dada\"";
    let refused = api.create(&maps, odd.clone(), &strict()).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message),
        (400, format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: {why}"))
    );
    let made = api.create(&maps, odd.clone(), &options()).await.unwrap();
    assert_eq!(made.warnings, ["unknown field \"metadata.lables\"", "unknown field \"dada\""]);
    assert!(made.object.get("dada").is_none() && made.object["metadata"].get("lables").is_none());
    assert_eq!(api.update(&one, odd, &strict()).await.unwrap_err().code, 400);
    let patch = json!({"dada": {}});
    let refused = api.merge(&one, &patch, &strict()).await.unwrap_err();
    assert_eq!((refused.code, refused.causes[0].field.as_str()), (422, "patch"));
    let same = api.merge(&one, &patch, &options()).await.unwrap();
    assert_eq!((same.warnings, same.object), (vec!["unknown field \"dada\"".to_owned()], made.object));
}

#[tokio::test]
async fn values_of_the_wrong_type_are_rejected() {
    let api = with_namespace().await;
    let wrong = json!({"metadata": {"name": "a"}, "data": {"k": 5}});
    assert_eq!(api.create(&at("configmaps", "shop", ""), wrong, &options()).await.unwrap_err().code, 400);
    api.create(&at("configmaps", "shop", ""), json!({"metadata": {"name": "a"}}), &options()).await.unwrap();
    let patch = json!({"data": {"k": 5}});
    assert_eq!(api.merge(&at("configmaps", "shop", "a"), &patch, &options()).await.unwrap_err().code, 422);
}

#[tokio::test]
async fn fields_that_only_the_server_sets_are_rejected() {
    let api = with_namespace().await;
    let (maps, one) = (at("configmaps", "shop", ""), at("configmaps", "shop", "a"));
    let refused = api.create(&maps, json!({"metadata": {"name": "a", "resourceVersion": "5"}}), &options()).await;
    assert_eq!(refused.unwrap_err().message, "resourceVersion should not be set on objects to be created");
    api.create(&maps, json!({"metadata": {"name": "a"}}), &options()).await.unwrap();
    for (field, value) in [("uid", "other"), ("deletionTimestamp", "2001-01-01T00:00:00Z")] {
        let mut patch = json!({"metadata": {}});
        patch["metadata"][field] = value.into();
        let refused = api.merge(&one, &patch, &options()).await.unwrap_err();
        assert_eq!((refused.code, refused.causes[0].field.clone()), (422, format!("metadata.{field}")));
    }
    let other = json!({"metadata": {"name": "a", "uid": "other"}});
    assert_eq!(api.update(&one, other, &options()).await.unwrap_err().reason, Reason::Conflict);
}

#[tokio::test]
async fn a_long_name_is_shortened_before_it_is_generated() {
    let api = with_namespace().await;
    let body = json!({"metadata": {"generateName": "a".repeat(80)}});
    let made = api.create(&at("configmaps", "shop", ""), body, &options()).await.unwrap().object;
    assert_eq!(text(&made, "name").len(), 63);
}

#[tokio::test]
async fn creating_an_object_in_a_deleted_namespace_is_rejected() {
    let api = with_namespace().await;
    api.delete(&at("namespaces", "", "shop"), &Deletion::default()).await.unwrap();
    let body = json!({"metadata": {"name": "b"}});
    let refused = api.create(&at("configmaps", "shop", ""), body, &options()).await.unwrap_err();
    assert!(refused.message.starts_with("configmaps \"b\" is forbidden"), "{refused}");
    assert_eq!(refused.causes[0].reason, "NamespaceTerminating");
}

#[tokio::test]
async fn the_spec_finalizers_of_a_namespace_have_no_owner() {
    let api = with_namespace().await;
    let namespace = api.get(&at("namespaces", "", "shop")).unwrap();
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert!(!namespace["metadata"]["managedFields"].to_string().contains("finalizers"));
}

#[tokio::test]
async fn the_annotations_of_a_deployment_count_for_its_generation() {
    let api = with_namespace().await;
    let deployments = |name: &str| Objects { group: "apps".to_owned(), ..at("deployments", "shop", name) };
    api.create(&deployments(""), json!({"metadata": {"name": "web"}, "spec": {}}), &options()).await.unwrap();
    let after = async |patch: Value| {
        api.merge(&deployments("web"), &patch, &options()).await.unwrap().object["metadata"]["generation"].clone()
    };
    assert_eq!(after(json!({"metadata": {"labels": {"a": "b"}}})).await, 1);
    assert_eq!(after(json!({"metadata": {"annotations": {"a": "b"}}})).await, 2);
}

#[tokio::test]
async fn a_custom_resource_must_match_its_path() {
    let (api, shelves) = with_shelves().await;
    let refused = async |body: Value| api.create(&shelves(""), body, &options()).await.unwrap_err();
    let mut other = shelf(json!({"name": "a"}));
    other["kind"] = "Table".into();
    let refusal = refused(other.clone()).await;
    assert_eq!((refusal.code, refusal.about.unwrap().kind.as_str()), (422, "Table"));
    other["apiVersion"] = "shop.test/v2".into();
    assert!(refused(other).await.message.starts_with("the API version in the data (shop.test/v2)"));
}

#[tokio::test]
async fn the_metadata_of_a_custom_resource_has_types() {
    let (api, shelves) = with_shelves().await;
    let refused = api.create(&shelves(""), shelf(json!({"name": "a", "labels": {"a": 5}})), &options()).await;
    assert_eq!(
        refused.unwrap_err().message,
        "Shelf in version \"v1\" cannot be handled as a Shelf: json: cannot unmarshal number into Go struct field \
         ObjectMeta.labels of type string"
    );
    let odd = shelf(json!({"name": "a", "lables": {}, "labels": {}, "annotations": {}}));
    let refused = api.create(&shelves(""), odd.clone(), &strict()).await.unwrap_err();
    assert!(refused.message.ends_with("unknown field \"metadata.lables\""), "{refused}");
    let made = api.create(&shelves(""), odd, &options()).await.unwrap().object;
    assert!(made["metadata"].get("labels").is_none() && made["metadata"].get("lables").is_none());
    let patch = json!({"spec": {"odd": 1}});
    assert_eq!(api.merge(&shelves("a"), &patch, &strict()).await.unwrap_err().code, 422);
    let blind = api.update(&shelves("a"), shelf(json!({"name": "a"})), &options()).await.unwrap_err();
    assert_eq!(blind.about.unwrap().kind, "shelves");
}

#[tokio::test]
async fn a_patch_is_not_rejected_for_stored_fields_that_became_unknown() {
    let (api, shelves) = with_shelves().await;
    let mut large = shelf(json!({"name": "a"}));
    large["spec"]["size"] = 5.into();
    api.create(&shelves(""), large, &options()).await.unwrap();
    let definition = definitions("shelves.shop.test");
    let smaller = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}
    }}]}});
    api.merge(&definition, &smaller, &options()).await.unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let after = api.merge(&shelves("a"), &patch, &strict()).await.unwrap().object;
    assert_eq!(after["spec"], json!({}));
}

#[tokio::test]
async fn an_applied_object_must_name_its_kind_and_match_its_types() {
    let (api, shelves) = with_shelves().await;
    let by = WriteOptions { manager: "one".to_owned(), ..options() };
    let map = at("configmaps", "shop", "a");
    let refused = async |at: &Objects, body: Value| api.apply(at, body, false, &by).await.unwrap_err();
    let nameless = refused(&map, json!({"metadata": {"name": "a"}})).await;
    assert_eq!((nameless.code, nameless.message.as_str()), (400, "invalid object type: /, Kind="));
    let odd = refused(&map, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dada": {}}));
    assert_eq!(
        odd.await.message,
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dada: field not declared in schema"
    );
    let mut wrong = shelf(json!({"name": "a"}));
    wrong["spec"]["size"] = "x".into();
    assert_eq!(
        refused(&shelves("a"), wrong).await.message,
        "failed to create typed patch object (/a; shop.test/v1, Kind=Shelf): .spec.size: expected numeric (int or \
         float), got string"
    );
}

#[tokio::test]
async fn the_last_applied_annotation_has_the_namespace_only_if_it_was_given() {
    let api = with_namespace().await;
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let body = json!({"metadata": {"name": "a", "annotations": {LAST: last.to_string()}}, "data": {"k": "v"}});
    api.create(&at("configmaps", "shop", ""), body, &options()).await.unwrap();
    let by = WriteOptions { manager: "kubectl".to_owned(), ..options() };
    let after = api.apply(&at("configmaps", "shop", "a"), last, false, &by).await.unwrap().object;
    assert_eq!(after["metadata"]["namespace"], "shop");
    assert!(!after["metadata"]["annotations"][LAST].to_string().contains("shop"));
}
