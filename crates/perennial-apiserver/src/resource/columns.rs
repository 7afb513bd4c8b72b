//! The table columns of built-in resources.

use super::{Column, Source};

/// A cell with a text from several fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// The creation time.
    CreatedAt,
    /// Whether a node is ready and schedulable.
    NodeStatus,
    /// The roles of a node, from its labels.
    NodeRoles,
    /// The ready containers of a pod, and their number.
    PodReady,
    /// The status of a pod, or why it does not run.
    PodStatus,
    /// The restarts of a pod's containers.
    PodRestarts,
    /// The ready pods of a deployment, and their number.
    DeploymentReady,
    /// The names of the containers of a pod template.
    Containers,
    /// The images of the containers of a pod template.
    Images,
    /// The pod labels of a deployment.
    DeploymentSelector,
    /// The pod labels of a service.
    ServiceSelector,
    /// The external addresses of a service.
    ServiceAddresses,
    /// The ports of a service.
    ServicePorts,
    /// The requested duration of a certificate.
    RequestedDuration,
    /// The condition of a certificate request.
    RequestCondition,
    /// The role of a binding.
    BoundRole,
    /// The server of an API.
    ApiServer,
    /// Whether an API is available.
    ApiAvailable,
    /// The object of an event.
    EventObject,
    /// The object of an event of `events.k8s.io`.
    EventRegarding,
}

/// Returns the columns of a resource.
pub(super) fn of(group: &str, kind: &str) -> Vec<Column> {
    let known = KNOWN.iter().find(|(of_group, of_kind, _)| *of_group == group && *of_kind == kind);
    let columns = known.map_or(AGE_ONLY, |(_, _, columns)| columns);
    // An event has its object instead of a name.
    let name: &[Line] = if kind == "Event" { &[] } else { &[NAME] };
    name.iter().chain(columns).map(Line::column).collect()
}

/// A column as a constant.
#[derive(Clone, Copy)]
struct Line {
    name: &'static str,
    kind: &'static str,
    priority: i32,
    from: From,
}

/// A source of a column as a constant.
#[derive(Clone, Copy)]
enum From {
    Path(&'static str),
    PathOr(&'static str, &'static str),
    NumberAt(&'static str),
    Count(&'static [&'static str]),
    AgeAt(&'static [&'static str]),
    Age,
    Cell(Cell),
}

impl Line {
    fn column(&self) -> Column {
        Column {
            name: self.name.to_owned(),
            kind: self.kind.to_owned(),
            description: String::new(),
            priority: self.priority,
            value: match self.from {
                From::Path(path) => Source::Path(path.to_owned()),
                From::PathOr(path, otherwise) => Source::PathOr(path, otherwise),
                From::NumberAt(path) => Source::NumberAt(path),
                From::Count(fields) => Source::Count(fields),
                From::AgeAt(paths) => Source::AgeAt(paths),
                From::Age => Source::Age,
                From::Cell(cell) => Source::Cell(cell),
            },
        }
    }

    /// Shows the column only in wide tables.
    const fn wide(self) -> Line {
        Line { priority: 1, ..self }
    }
}

const fn line(name: &'static str, from: From) -> Line {
    Line { name, kind: "string", priority: 0, from }
}

const fn path(name: &'static str, path: &'static str) -> Line {
    line(name, From::Path(path))
}

const fn or(name: &'static str, path: &'static str, otherwise: &'static str) -> Line {
    line(name, From::PathOr(path, otherwise))
}

const fn cell(name: &'static str, cell: Cell) -> Line {
    line(name, From::Cell(cell))
}

const fn count(name: &'static str, fields: &'static [&'static str]) -> Line {
    line(name, From::Count(fields))
}

const fn number(name: &'static str, path: &'static str) -> Line {
    line(name, From::NumberAt(path))
}

const fn age_at(name: &'static str, paths: &'static [&'static str]) -> Line {
    line(name, From::AgeAt(paths))
}

const NAME: Line = path("Name", ".metadata.name");
const AGE: Line = line("Age", From::Age);
const AGE_ONLY: &[Line] = &[AGE];
const CREATED_AT: Line = cell("Created At", Cell::CreatedAt);
const BINDING: &[Line] = &[cell("Role", Cell::BoundRole), AGE];
const WEBHOOKS: &[Line] = &[count("Webhooks", &["webhooks"]), AGE];
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The columns by group and kind. Other kinds have a name and an age.
const KNOWN: &[(&str, &str, &[Line])] = &[
    ("", "Namespace", &[path("Status", ".status.phase"), AGE]),
    // A Kubernetes API server also declares the number of data entries as a string.
    ("", "Secret", &[path("Type", ".type"), count("Data", &["data"]), AGE]),
    ("", "ConfigMap", &[count("Data", &["data", "binaryData"]), AGE]),
    (
        "",
        "Service",
        &[
            path("Type", ".spec.type"),
            or("Cluster-IP", ".spec.clusterIP", "<none>"),
            cell("External-IP", Cell::ServiceAddresses),
            cell("Port(s)", Cell::ServicePorts),
            AGE,
            cell("Selector", Cell::ServiceSelector).wide(),
        ],
    ),
    (
        "",
        "Node",
        &[
            cell("Status", Cell::NodeStatus),
            cell("Roles", Cell::NodeRoles),
            AGE,
            or("Version", ".status.nodeInfo.kubeletVersion", ""),
            or("Internal-IP", ".status.addresses[?(@.type==\"InternalIP\")].address", "<none>").wide(),
            or("External-IP", ".status.addresses[?(@.type==\"ExternalIP\")].address", "<none>").wide(),
            or("OS-Image", ".status.nodeInfo.osImage", "<unknown>").wide(),
            or("Kernel-Version", ".status.nodeInfo.kernelVersion", "<unknown>").wide(),
            or("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion", "<unknown>").wide(),
        ],
    ),
    (
        "",
        "Pod",
        &[
            cell("Ready", Cell::PodReady),
            cell("Status", Cell::PodStatus),
            cell("Restarts", Cell::PodRestarts),
            AGE,
            or("IP", ".status.podIP", "<none>").wide(),
            or("Node", ".spec.nodeName", "<none>").wide(),
        ],
    ),
    (
        "",
        "Event",
        &[
            age_at("Last Seen", &[".series.lastObservedTime", ".lastTimestamp", ".eventTime"]),
            path("Type", ".type"),
            path("Reason", ".reason"),
            cell("Object", Cell::EventObject),
            path("Message", ".message"),
            NAME.wide(),
        ],
    ),
    (
        "events.k8s.io",
        "Event",
        &[
            age_at("Last Seen", &[".series.lastObservedTime", ".deprecatedLastTimestamp", ".eventTime"]),
            path("Type", ".type"),
            path("Reason", ".reason"),
            cell("Object", Cell::EventRegarding),
            path("Message", ".note"),
            NAME.wide(),
        ],
    ),
    ("coordination.k8s.io", "Lease", &[or("Holder", ".spec.holderIdentity", ""), AGE]),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        &[
            AGE,
            path("SignerName", ".spec.signerName"),
            or("Requestor", ".spec.username", ""),
            cell("RequestedDuration", Cell::RequestedDuration),
            cell("Condition", Cell::RequestCondition),
        ],
    ),
    (
        "apiregistration.k8s.io",
        "APIService",
        &[cell("Service", Cell::ApiServer), cell("Available", Cell::ApiAvailable), AGE],
    ),
    (ADMISSION, "ValidatingWebhookConfiguration", WEBHOOKS),
    (ADMISSION, "MutatingWebhookConfiguration", WEBHOOKS),
    ("apiextensions.k8s.io", "CustomResourceDefinition", &[Line { kind: "date", ..CREATED_AT }]),
    (
        "apps",
        "Deployment",
        &[
            cell("Ready", Cell::DeploymentReady),
            number("Up-to-date", ".status.updatedReplicas"),
            number("Available", ".status.availableReplicas"),
            AGE,
            cell("Containers", Cell::Containers).wide(),
            cell("Images", Cell::Images).wide(),
            cell("Selector", Cell::DeploymentSelector).wide(),
        ],
    ),
    (RBAC, "Role", &[CREATED_AT]),
    (RBAC, "ClusterRole", &[CREATED_AT]),
    (RBAC, "RoleBinding", BINDING),
    (RBAC, "ClusterRoleBinding", BINDING),
];
