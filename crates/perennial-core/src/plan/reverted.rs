//! Planner rules that a test switches off, to show that the simulation detects the consequences.

#[cfg(test)]
use std::cell::Cell;

/// The rules that are switched off.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reverted {
    /// A Service without a certificate does not wait for its signer to spread.
    pub(crate) new_services: bool,
    /// No process has a cross-certificate without the CA that signed it.
    pub(crate) cross_certificates: bool,
}

#[cfg(test)]
thread_local! {
    static REVERTED: Cell<Reverted> = const { Cell::new(Reverted { new_services: false, cross_certificates: false }) };
}

/// Returns the rules that are switched off in this thread: none except in a test.
pub(super) fn reverted() -> Reverted {
    #[cfg(test)]
    return REVERTED.get();
    #[cfg(not(test))]
    Reverted::default()
}

/// Runs a function with these rules switched off.
#[cfg(test)]
pub(crate) fn without<T>(rules: Reverted, run: impl FnOnce() -> T) -> T {
    REVERTED.set(rules);
    let result = run();
    REVERTED.set(Reverted::default());
    result
}
