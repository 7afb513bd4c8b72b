# The front door. `make help` lists what is here.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/perennial
CARGO_TOOLS := $(CACHE)/tools/cargo/bin
export PATH := $(CARGO_TOOLS):$(PATH)

# A directory of its own for every run: keys are never overwritten.
OUT ?= out/demo-$(shell date +%Y%m%d-%H%M%S)
FUZZ_SECONDS ?= 10
# The same seed finds the same inputs, so that a change is not blamed for luck; 0 draws another one.
FUZZ_SEED ?= 1
FUZZ_TARGETS = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

.PHONY: help up demo test test-fast test-fuzz mutants bench lint generate tools tools-cargo

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

up: ## Start an embedded control plane in out/up; Ctrl-C stops it
	cargo run --quiet --release --bin perennial -- up --data-dir out/up

demo: ## Make every certificate of a new cluster from examples/install-config.yaml
	cargo run --quiet --release --bin perennial -- install --install-config examples/install-config.yaml --out $(OUT)

test: tools test-fuzz ## Install what the tests need, and run all of them
	cargo nextest run --workspace --all-features --no-fail-fast --status-level slow

test-fast: ## The tests that need nothing but Rust
	cargo test --workspace --exclude perennial-testbed

test-fuzz: tools-cargo ## Fuzz each parser for FUZZ_SECONDS; FUZZ_SEED=0 draws a seed
	cargo run --quiet --manifest-path fuzz/Cargo.toml --example seeds
	@mkdir -p fuzz/target; for target in $(FUZZ_TARGETS); do \
	  echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	  log=fuzz/target/$$target.log; \
	  cargo fuzz run --sanitizer none $$target -- -seed=$(FUZZ_SEED) -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 >$$log 2>&1 \
	    || { tail -n 60 $$log; exit 1; }; \
	  grep number_of_executed_units $$log; \
	done

# Each mutant is a build and a run of the tests of the planner, so this takes an hour or two. The few tests that take
# seconds are left out: what survives the others is for them, and for `cargo mutants` without the second filter.
# docs/explanation/mutants.md lists the mutants that nobody can kill.
MUTANTS_OUT ?= target/mutants
mutants: ## Break the planner and the proof in every way, and see whether a test notices
	@tools/ensure mutants
	CARGO_PROFILE_DEV_DEBUG=0 cargo mutants -p perennial-core \
	  -f 'crates/perennial-core/src/plan/**/*.rs' -e 'crates/perennial-core/src/plan/tests/**' \
	  -f crates/perennial-core/src/trust/prove.rs -f crates/perennial-core/src/trust/edge.rs \
	  --test-tool nextest --baseline skip --timeout 150 -o $(MUTANTS_OUT) -C --lib \
	  -- -E 'test(/^(plan|trust|rules)::/) - test(/trouble|look::nothing_happens|in_ordinary_life/)'

bench: ## Measure, each figure beside its limit
	cargo bench --quiet -p perennial-core --bench plan
	cargo bench --quiet -p perennial --bench day1
	@tools/ensure kubernetes
	cargo bench --quiet -p perennial --bench api
	cargo bench --quiet -p perennial --bench operator
	cargo bench --quiet -p perennial --bench serving

lint: tools-cargo ## Formatting, lints, documentation, licences, and each crate by itself
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	@for crate in crates/*; do cargo check --quiet -p $$(basename $$crate) || exit 1; done
	cargo deny --log-level error check bans licenses sources
	@cargo deny --log-level error check advisories || echo "advisories: not judged, or findings above (they warn, they do not block)"

generate: ## Write the generated files again: CRDs, reference pages, the example snapshot and the samples of the README
	cargo run --quiet --bin perennial -- crds --out deploy/crds
	cargo run --quiet --bin perennial -- certs --catalog -o markdown > docs/reference/catalog.md
	cargo run --quiet --bin perennial -- certs --graph svg > docs/reference/trust.svg
	cargo run --quiet --bin perennial -- simulate --years=1 --services=2 --snapshot-at 19h10m > examples/snapshot.json
	UPDATE_EXPECT=1 cargo test --quiet -p perennial --test readme samples

tools: ## Install what the tests need
	@tools/ensure all

tools-cargo:
	@tools/ensure cargo
