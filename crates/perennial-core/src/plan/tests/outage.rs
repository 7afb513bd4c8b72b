//! No pass runs for a long time: afterwards everything is restored.

use super::fixture::{Cluster, HOUR, day};

#[test]
fn everything_is_restored_after_any_time_without_a_pass() {
    let mut settled = Cluster::made();
    settled.go_to(day(5));
    for length in [10, 16, 25, 40, 100, 300, 400, 800, 1100, 2000] {
        let mut cluster = settled.clone();
        cluster.pass_to(day(5 + length));
        cluster.go_to(cluster.now() + 3 * HOUR);
        assert_eq!(cluster.broken(), Vec::<String>::new(), "after {length} days");
    }
}

#[test]
fn everything_is_restored_after_an_outage_during_a_rotation() {
    for row in ["etcd-signer", "csr-signer-signer", "csr-signer", "signing-key", "kube-control-plane-signer"] {
        for length in [1, 16, 40, 400] {
            let mut cluster = Cluster::made();
            cluster.go_to(day(5)).force(row, "test");
            cluster.settle();
            cluster.pass_to(day(5 + length));
            cluster.go_to(cluster.now() + 3 * HOUR);
            assert_eq!(cluster.broken(), Vec::<String>::new(), "{row} after {length} days");
        }
    }
}
