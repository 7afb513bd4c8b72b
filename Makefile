# `make help` lists the targets.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/perennial
CARGO_TOOLS := $(CACHE)/tools/cargo/bin
export PATH := $(CARGO_TOOLS):$(PATH)

# Every run has a new directory, because Perennial never overwrites keys.
OUT ?= out/demo-$(shell date +%Y%m%d-%H%M%S)
FUZZ_SECONDS ?= 10
# The same seed gives the same inputs, so that runs are comparable; 0 draws a random seed.
FUZZ_SEED ?= 1
FUZZ_TARGETS = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

.PHONY: help up demo test test-fast test-long test-fuzz mutants bench lint generate tools tools-cargo

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

up: ## Start an embedded control plane in out/up; Ctrl-C stops it (the first build takes a few minutes)
	cargo run --locked --profile quick --bin perennial -- up --data-dir out/up

demo: ## Create every certificate of a new cluster from examples/install-config.yaml
	cargo run --locked --profile quick --bin perennial -- install --install-config examples/install-config.yaml --out $(OUT)

# Each run simulates a quarter of the seeds. The quarter changes with each commit.
export PERENNIAL_SEEDS ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)

# How many seconds the tests may take on 2 cores, after the build.
TEST_BUDGET ?= 720
TEST_REPORT = $(or $(CARGO_TARGET_DIR),target)/nextest/default/junit.xml

test: tools test-fuzz ## Install the tools for the tests, run all tests, and print the time of each suite
	cargo nextest run --locked --workspace --all-features --no-run
	@start=$$(date +%s); \
	cargo nextest run --locked --workspace --all-features --no-fail-fast --status-level slow; status=$$?; \
	tools/times $(TEST_REPORT) $$(( $$(date +%s) - start )) $(TEST_BUDGET); \
	exit $$status

test-fast: ## Run the tests that need only Rust
	cargo test --locked --workspace --exclude perennial-testbed

# Tests that take minutes: kills, races, watchers, floods, scans. Each has `#[ignore]` with the reason. The mutants at the end take up to an
# hour for each part.
test-long: tools ## Run the tests that take minutes, and the mutants, which take hours
	cargo nextest run --locked --workspace --all-features --no-fail-fast --status-level slow --run-ignored only
	PERENNIAL_SEEDS=all cargo nextest run --locked --workspace --all-features --no-fail-fast --status-level slow -E 'test(simulate::tests::seeds::)'
	for part in $(MUTANTS_PARTS); do $(MAKE) mutants MUTANTS_PART=$$part || exit 1; done

# `cargo fuzz` has no option --locked. The first command fails if fuzz/Cargo.lock is not up to date, so the builds of `cargo fuzz` use its versions.
test-fuzz: tools-cargo ## Fuzz each parser for FUZZ_SECONDS; FUZZ_SEED=0 draws a random seed
	cargo run --locked --quiet --manifest-path fuzz/Cargo.toml --example seeds
	@mkdir -p fuzz/target; for target in $(FUZZ_TARGETS); do \
	  echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	  log=fuzz/target/$$target.log; \
	  cargo fuzz run --sanitizer none $$target -- -seed=$(FUZZ_SEED) -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 >$$log 2>&1 \
	    || { tail -n 60 $$log; exit 1; }; \
	  grep number_of_executed_units $$log; \
	done

# Each mutant needs a build and a run of tests, so each part takes an hour or more. A run ends after MUTANTS_MINUTES, and the next run of
# the same part continues. docs/explanation/mutants.md explains the results.
MUTANTS_PARTS = plan act observe history lease serving inject status x509 store auth apply
MUTANTS_PART ?= plan
export MUTANTS_OUT ?= target/mutants
export MUTANTS_MINUTES ?= 60
mutants: ## Check with mutants that the tests cover MUTANTS_PART of the code: the planner and the proof, or another part
	@tools/ensure mutants
	tools/mutants $(MUTANTS_PART)

bench: ## Measure performance, and compare each figure with its limit
	cargo bench --locked --quiet -p perennial-core --bench plan
	cargo bench --locked --quiet -p perennial --bench day1
	cargo bench --locked --quiet -p perennial --bench attacks
	@tools/ensure kubernetes
	cargo bench --locked --quiet -p perennial --bench api
	cargo bench --locked --quiet -p perennial --bench operator
	cargo bench --locked --quiet -p perennial --bench serving

lint: tools-cargo ## Check formatting, lints, documentation and licences, and each crate separately
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@for crate in crates/*; do cargo check --locked --quiet -p $$(basename $$crate) || exit 1; done
	@cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	cargo deny --log-level error check bans licenses sources
	@if cargo deny --log-level off fetch db; then \
	  cargo deny --log-level error check --disable-fetch advisories; \
	else \
	  echo '*** The advisories were NOT checked: the advisory database could not be fetched. ***' >&2; \
	fi

generate: ## Update the generated files: CRDs, reference pages, the example snapshot and the README samples
	cargo run --locked --quiet --bin perennial -- crds --out deploy/crds
	cargo run --locked --quiet --bin perennial -- certs --catalog -o markdown > docs/reference/catalog.md
	cargo run --locked --quiet --bin perennial -- certs --graph svg > docs/reference/trust.svg
	cargo run --locked --quiet --bin perennial -- simulate --years=1 --services=2 --snapshot-at 19h10m > examples/snapshot.json
	UPDATE_EXPECT=1 cargo test --locked --quiet -p perennial --test readme samples

tools: ## Install the tools for the tests
	@tools/ensure all

tools-cargo:
	@tools/ensure cargo
