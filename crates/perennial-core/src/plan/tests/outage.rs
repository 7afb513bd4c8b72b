//! Nobody looked for a long time: everything comes back, in whatever order that takes.

use super::fixture::{Cluster, HOUR, day};

#[test]
fn after_any_time_without_a_look_everything_comes_back() {
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
fn after_an_outage_in_the_middle_of_a_rotation_everything_comes_back() {
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
