//! The circuit breaker: it limits how many certificates are issued for one place within an hour, because more mean a loop.

use crate::catalog::Span;

/// How many certificates a place is issued within [`BREAKER_WINDOW`] at most, and so how many of its last issues are remembered.
pub const REMEMBERED_ISSUES: usize = 5;

/// The time in which a place is issued at most [`REMEMBERED_ISSUES`] certificates.
pub const BREAKER_WINDOW: Span = Span::minutes(60);
