# The targets need Go, a C compiler, git and make. `make` without a target lists all targets; see also CONTRIBUTING.md.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# sudo leaves the folder of an installed Go out of PATH, and su that of Debian's nft. Make before 4.4 doesn't export PATH to
# $(shell).
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin

GO ?= go
KUBECTL ?= kubectl
DOCKER ?= docker

# Build and test each module with its own go.mod, also below a folder with a go.work. In a workspace, the dependencies of one
# module could change the versions in another, so that the tests wouldn't use the versions that users get.
export GOWORK := off

# No program or test is compiled with debug information, which takes a fifth of the compiler's time. All builds, tests and linters
# have the same flags (see also hack/kubernetes and hack/image), so that nothing is compiled twice, except with the race detector, which
# needs cgo. For a debugger, run go build without make. The compiler collects garbage less often: it needs a fifth less time, and a
# quarter more memory. GOGC isn't exported, because it would change the programs that are tested and measured.
COMPILER_FLAGS := -trimpath -gcflags=all=-dwarf=false
export CGO_ENABLED := 0
# Git refuses root the working copy of another user, and then go build fails unless it omits the commit.
VCS_FLAGS := $(if $(shell git rev-parse HEAD 2>/dev/null),,-buildvcs=false)
GOFLAGS := $(shell PATH='$(PATH)' $(GO) env GOFLAGS)
export GOFLAGS := $(strip $(filter-out $(COMPILER_FLAGS),$(GOFLAGS)) $(COMPILER_FLAGS) \
	$(if $(findstring -toolexec,$(GOFLAGS)),,'-toolexec=env GOGC=400') $(VCS_FLAGS))

MODULE := github.com/conclave-dev/conclave
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)

# The commands from which images are built, and the tags that `make image`, `make docker-build` and `make deploy` use.
COMMANDS ?= manager agent
IMG ?= conclave/manager:$(VERSION)
AGENT_IMG ?= conclave/agent:$(VERSION)
# The operator's namespace. `make undeploy` deletes it, so the environment doesn't override it.
NAMESPACE := conclave-system
PLATFORM ?= linux/$(shell PATH='$(PATH)' $(GO) env GOARCH)

# The modules that are linted and tested. Modules that only pin a tool aren't listed.
MODULES := $(patsubst %/go.mod,%,$(wildcard ./go.mod api/go.mod client/go.mod controllerruntime/go.mod hack/compare/go.mod hack/tools/go.mod test/thirdparty/go.mod))

TOOL := hack/tools/tool
LINT := GOGC=400 $(CURDIR)/$(TOOL) golangci

##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "; printf "Usage: make TARGET [VARIABLE=value]...\n"} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ Development

.PHONY: manifests
manifests: ## Generate the CRD and RBAC manifests from the markers in the code.
	@$(TOOL) controller-gen rbac:roleName=conclave-manager crd paths=./... output:crd:artifacts:config=config/crd/bases

.PHONY: generate
generate: ## Generate the DeepCopy methods of the API types, and the API reference docs/api.md.
	@$(TOOL) controller-gen object paths=./api/...
	@$(TOOL) crd-ref-docs --log-level ERROR --source-path api/v1 --output-path docs/api.md --renderer markdown \
		--config hack/tools/crd-ref-docs/config.yaml --templates-dir hack/tools/crd-ref-docs/templates

.PHONY: fmt
fmt: ## Format all Go code.
	@$(LINT) fmt

.PHONY: tidy
tidy: ## Run go mod tidy in all modules.
	@for module in $(MODULES); do $(GO) -C $$module mod tidy 2>&1 | { grep -v '^go: downloading' || true; }; done

.PHONY: vet
vet: ## Run go vet on all modules.
	@$(call in_each_module,$(GO) vet ./...)

.PHONY: lint
lint: lint-config ## Run the linters on all modules: style, bugs and API conventions.
	@$(call in_each_module,$(LINT) run --allow-parallel-runners ./...)

.PHONY: lint-fix
lint-fix: ## Run the linters and apply their fixes.
	@$(call in_each_module,$(LINT) run --allow-parallel-runners --fix ./...)

.PHONY: lint-config
lint-config: ## Check the configuration of the linters.
	@$(LINT) config verify

.PHONY: verify
verify: ## Generate, format, tidy, lint, check commit subjects and file sizes; fail if a file changes. CI runs this first.
	@hack/tools/commits
	@hack/tools/large
	@$(TOOL) actionlint -pyflakes=
	@hack/tools/unchanged $(MAKE) generate manifests fmt tidy
	@$(MAKE) lint
	@echo "verify: everything is up to date"

# The database of vulnerabilities is a Go module, too, so the module proxy suffices. VULNDB=https://vuln.go.dev is the original.
VULNDB ?= file://$$($(GO) mod download -json golang.org/x/vulndb@latest | sed -n 's/.*"Dir": "\(.*\)",/\1/p')/data/osv
.PHONY: vuln
vuln: ## Check for known vulnerabilities. Needs the network, so verify doesn't include it.
	@db=$(VULNDB); $(call in_each_module,$(CURDIR)/$(TOOL) govulncheck -db $$db ./...)

# kube-score doesn't compile with the API of Kubernetes that other tools use, so it isn't in hack/tools/go.mod. What it may not report:
# a pod must start without the registry, so images aren't always pulled; CPU limits would delay heartbeats; which addresses a pod uses
# depends on the cluster; the agent has probes, and a Service selects the coordinator without others; constraints or the scheduler spread
# pods, instead of affinities; and witnesses need no DNS names.
KUBE_SCORE = $(GO) run github.com/zegl/kube-score/cmd/kube-score@v1.20.0 score --output-format ci --ignore-container-cpu-limit \
	--ignore-test container-image-pull-policy,pod-networkpolicy,pod-probes,deployment-has-host-podantiaffinity \
	--ignore-test statefulset-has-host-podantiaffinity
HELM = $(GO) -C test/thirdparty run helm.sh/helm/v4/cmd/helm
.PHONY: score
score: ## Check manifests, samples and chart with kube-score and helm lint. Needs the network.
	@$(HELM) lint --strict --quiet $(CURDIR)/charts/conclave 2> >(grep -v 'found symbolic link' >&2)
	@{ $(HELM) template conclave $(CURDIR)/charts/conclave --set witness.enabled=true 2> >(grep -v 'found symbolic link' >&2) | \
			$(KUBE_SCORE) --ignore-test statefulset-has-servicename -; \
		$(TOOL) kustomize build config/default | $(KUBE_SCORE) -; \
		$(KUBE_SCORE) config/samples/*.yaml; \
	} | sed '/^\[OK\]/d; /^\[SKIPPED\]/d'

.PHONY: scorecard
scorecard: ## Run the checks of OpenSSF Scorecard that need only the files. Needs the network to build it, about two minutes the first time.
	@$(GO) run github.com/ossf/scorecard/v5@v5.3.0 --local . --checks \
		Binary-Artifacts,Dangerous-Workflow,Dependency-Update-Tool,License,Pinned-Dependencies,Security-Policy,Token-Permissions

##@ Tests

.PHONY: test
test: ## Run the tests that need no cluster, as root or not, with fewer cases than test-all: at most ten minutes.
	@if [ $$(id -u) = 0 ]; then hack/packages test; fi
	@$(call keep_owner,hack/test short)

# The parts of test-all, in the order in which they run. CI runs them on several machines.
PARTS = core race programs agents tools model e2e kind
export TOOL_MODULES := $(filter-out . api client controllerruntime,$(MODULES))

.PHONY: test-all
test-all: ## As root: run all tests but test-kind: test-core, -race, -programs, -agents, -tools, -model and -e2e (see hack/test).
	@if [ $$(id -u) = 0 ]; then hack/packages all || [ "$${CI:-}" != true ]; fi
	@$(call keep_owner,hack/test all)

.PHONY: $(PARTS:%=test-%)
$(PARTS:%=test-%):
	@hack/test $(@:test-%=%)

.PHONY: envtest-assets
envtest-assets: ## Print the folder of etcd, kube-apiserver and kubectl, for KUBEBUILDER_ASSETS. Builds them if necessary.
	@hack/kubernetes/build kubernetes

.PHONY: screenshots
screenshots: ## Take the screenshots of the dashboard in docs/images again. Needs chromium.
	@$(GO) -C test/thirdparty/dashboard test -count 1 ./... -screenshots $(CURDIR)/docs/images

.PHONY: model
model: ## Search all states of the model of the grants within its bounds, with all rules and without each. As root on Debian, installs spin.
	@hack/packages model
	@hack/model/check

.PHONY: bench
bench: ## Run Go benchmarks. Variables: BENCH=regexp, COUNT=n, BENCHTIME=5s.
	@packages=$$($(GO) list ./...) || exit 1; \
	if [ -z "$$packages" ]; then echo "no Go packages in the root module: nothing to measure"; exit 0; fi; \
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -count $(or $(COUNT),1) -benchtime $(or $(BENCHTIME),1s) -timeout 60m $$packages

SCHEDULES ?= 1000000
PROCESSES ?= 3 4 5
.PHONY: soak
soak: ## Simulate SCHEDULES random schedules of groups of PROCESSES with all faults except gone, all elections and safety modes, from SEED. CONVERGENCE_EVERY=8 continues one in eight after its last fault.
	@mkdir -p bin; $(STATIC) -o bin/ ./cmd/kubectl-conclave
	@for processes in $(PROCESSES); do \
		for safety in Majority Strict Available; do \
			for algorithm in Bully StatusTable RingAllIDs RingChampion RingActiveList RingSkip; do \
				bin/kubectl-conclave simulate --algorithm $$algorithm --safety $$safety --faults soak --processes $$processes \
					--schedules $$(( $(SCHEDULES) / 18 / $(words $(PROCESSES)) + 1 )) --seed $(or $(SEED),1) --convergence-every $(or $(CONVERGENCE_EVERY),1); \
			done; \
		done; \
	done

FAULTS ?= 100000
.PHONY: soak-agent
soak-agent: ## Inject FAULTS faults into applications with real agents, in Majority and Strict, from SEED. CONCLAVE_RACE=true detects races.
	@CGO_ENABLED=1 $(GO) test -count 1 -timeout 0 -v -race -run TestRegistersAreLinearizable ./test/agents -faults $(FAULTS) $(if $(SEED),-seed $(SEED))

GRAPHS ?= 100
.PHONY: soak-graphs
soak-graphs: ## Run real agents on GRAPHS random graphs of broken links, from SEED, with all elections, policies and safety modes.
	@$(GO) test -count 1 -timeout 0 -v -run TestEveryStaticGraphHasCoordinator ./test/agents -graphs $(GRAPHS) $(if $(SEED),-seed $(SEED))

OUTAGE ?= 2m
REPLICAS ?= 50
IDLE ?= 5m
.PHONY: soak-operator
soak-operator: ## As root: run the operator's end-to-end tests with outages of OUTAGE, REPLICAS pods of a Deployment, and an idle phase of IDLE.
	@hack/kind/run $(GO) test -count 1 -timeout 0 -v -run TestInCluster/operator ./test/e2e -outage $(OUTAGE) -replicas $(REPLICAS) -idle $(IDLE)

# ARGS has further flags of test/chaos, such as ARGS="-pause 5s -kinds pod,force-pod".
.PHONY: chaos
chaos: FAULTS = 200
chaos: build ## Inject FAULTS faults from SEED into groups with each election and safety mode; write docs/results.
	@hack/kind/run $(GO) run ./test/chaos -faults $(FAULTS) -seed $(or $(SEED),1) $(ARGS)

.PHONY: bench-agent
bench-agent: ## Measure real agents: failover, hand-over, idle cost. Example: ARGS="--agents 5".
	@mkdir -p bin; $(STATIC) -o bin/ ./hack/bench-agent
	@bin/bench-agent $(ARGS)

.PHONY: bench-operator
bench-operator: ## Measure the operator with many groups. Example: ARGS="--groups 100".
	@mkdir -p bin; $(STATIC) -o bin/ ./hack/bench-operator
	@bin/bench-operator $(ARGS)

.PHONY: compare
compare: ## As root: measure Conclave beside other elections, in docs/results. Example: ARGS="--rounds 3 --only floor,raft", or ARGS="--report operators".
	@hack/packages compare || true
	@$(MAKE) build PROGRAM=agent
	@$(GO) -C hack/compare build -o $(CURDIR)/bin/compare .
	@KUBEBUILDER_ASSETS=$$($(MAKE) -s envtest-assets) && export KUBEBUILDER_ASSETS && bin/compare $(ARGS)

##@ Build

STATIC = $(GO) build -ldflags "-X main.version=$(VERSION)"

.PHONY: build
build: ## Build the commands in bin/, or only PROGRAM.
	@commands=$$(ls -d cmd/$(or $(PROGRAM),*)/) || exit 2; \
	mkdir -p bin; \
	for command in $$commands; do \
		name=$$(basename $$command); \
		if [ $$name = agent ]; then name=conclave-agent; fi; \
		$(STATIC) -o bin/$$name ./$$command; \
	done
	@install -m 755 cmd/kubectl-conclave/kubectl_complete-conclave bin/

# compile prints how many packages it has compiled, which a build of several programs doesn't.
.PHONY: compile
compile:
	@most=$$($(GO) list -deps $(PACKAGES) 2> >(hack/tools/progress Go >&2) | wc -l); \
	$(GO) list -export -deps -v -f '' $(PACKAGES) 2>&1 | hack/tools/progress Go $$most

.PHONY: demo
demo: ## Start a kind cluster with the operator and a group, and take its coordinator away in three ways. Without Docker, as root.
	@$(call keep_owner,hack/demo/run)

.PHONY: demo-down
demo-down: ## Remove the cluster of make demo.
	@hack/kind/down

# An interrupted go build leaves its temporary files.
TOUR := ./cmd/agent ./hack/tour
.PHONY: tour
tour: ## Show a simulated election, and failovers of five real agents. Needs only Go: no root, no cluster, no C compiler.
	@[ -e bin/tour ] || echo "tour: builds two programs first, the agent and the tour"; \
	export GOTMPDIR=$$(mktemp -d); trap 'rm -rf "$$GOTMPDIR"' EXIT; \
	missing=$$($(GO) list -deps -f '{{.StaleReason}}' $(TOUR) | { grep -vc 'available in build cache' || true; }); \
	if [ $$missing -gt 50 ]; then echo "tour: compiling $$missing packages, about a minute the first time"; fi; \
	$(GO) build -v -o /dev/null $(TOUR) 2>&1 | hack/tools/progress tour $$missing; \
	$(MAKE) build PROGRAM=agent; \
	$(STATIC) -o bin/ ./hack/tour
	@bin/tour

.PHONY: run
run: ## Run the manager on this machine with the current cluster, where NAMESPACE must exist. ARGS contains flags.
	@POD_NAMESPACE=$(NAMESPACE) AGENT_IMAGE=$(AGENT_IMG) $(GO) run ./cmd/manager $(ARGS)

# tag sets $$tag to the tag of the image of the command $$name.
tag = case $$name in manager) tag=$(IMG);; agent) tag=$(AGENT_IMG);; *) tag=conclave/$$name:$(VERSION);; esac

.PHONY: image
image: ## Build the images of COMMANDS without Docker, as dist/NAME.tar with the SBOM dist/NAME.spdx.json.
	@for name in $(COMMANDS); do \
		if [ ! -d cmd/$$name ]; then echo "no folder cmd/$$name: skipping its image"; continue; fi; \
		$(tag); \
		$(GO) -C hack/image run . -source $(CURDIR) -package ./cmd/$$name -version $(VERSION) -tag $$tag -platform $(PLATFORM) -output $(CURDIR)/dist; \
	done

EXAMPLE ?= worker
.PHONY: image-example
image-example: ## Build the images of the agent and of examples/EXAMPLE, by default worker: dist/agent.tar and dist/EXAMPLE.tar.
	@$(MAKE) image COMMANDS=agent AGENT_IMG=conclave/agent:example
	@$(GO) -C hack/image run . -source $(CURDIR) -package ./examples/$(EXAMPLE) -version $(VERSION) \
		-tag conclave/$(EXAMPLE):example -platform $(PLATFORM) -output $(CURDIR)/dist

.PHONY: docker-build
docker-build: ## Build the images of COMMANDS with Docker: manager, agent.
	@command -v $(DOCKER) >/dev/null || { echo "$(DOCKER) is not in PATH: use make image, which builds the same images without it" >&2; exit 2; }
	@for name in $(COMMANDS); do \
		if [ ! -d cmd/$$name ]; then echo "no folder cmd/$$name: skipping its image"; continue; fi; \
		$(tag); \
		DOCKER_BUILDKIT=1 $(DOCKER) build --file $(or $(DOCKERFILE),Dockerfile) --platform $(PLATFORM) --target $$name --build-arg VERSION=$(VERSION) --tag $$tag .; \
	done

.PHONY: docker-push
docker-push: ## Push the images that docker-build has built.
	@for name in $(COMMANDS); do $(tag); $(DOCKER) push $$tag; done

INSTALLER ?= dist/install.yaml
# given fails unless the user set a variable: the default tags are for local builds. On a public registry, whoever owns these names
# could publish anything.
given = $(if $(filter file,$(origin $(1))),$(error $(1) must be the image to deploy, such as $(1)=registry.example.com/conclave/$(2):v1))

.PHONY: build-installer
build-installer: ## Write all manifests of the operator to the file INSTALLER, with the images IMG (manager) and AGENT_IMG (agent).
	@$(call given,IMG,manager)$(call given,AGENT_IMG,agent)$(OVERLAY)
	@mkdir -p $(dir $(INSTALLER))
	@$(TOOL) kustomize build bin/deploy >$(INSTALLER)
	@echo "$(INSTALLER)"

REGISTRY :=
.PHONY: release
release: ## Write all files of release VERSION, with the images of REGISTRY, to dist/release. It pushes nothing. About ten minutes of compilation on two cores.
	@$(STATIC) -o bin/ ./hack/release
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} \
		bin/release -version '$(if $(filter file,$(origin VERSION)),,$(VERSION))' -registry '$(REGISTRY)'

.PHONY: site
site: ## Build the documentation site from docs/ in dist/site. As root on Debian, installs mkdocs.
	@hack/packages site
	@hack/site/build $(CURDIR)/dist/site

.PHONY: clean
clean: ## Remove bin/, including the tools, and dist/.
	@rm -rf bin dist

##@ Deployment to the cluster of the current kubeconfig

.PHONY: install
install: ## Install the CRDs.
	@$(MAKE) manifests
	@$(TOOL) kustomize build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: ## Remove the CRDs, which deletes all ElectionGroups.
	@$(check_uninstall)
	@$(TOOL) kustomize build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: manifests ## Deploy the operator to NAMESPACE with the images IMG (manager) and AGENT_IMG (agent).
	@$(call given,IMG,manager)$(call given,AGENT_IMG,agent)$(no_other_operator)
	@$(OVERLAY)
	@$(TOOL) kustomize build bin/deploy | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove the operator, NAMESPACE and the CRDs, which deletes all ElectionGroups.
	@$(no_other_operator)
	@$(check_uninstall)
	@$(OVERLAY)
	@$(TOOL) kustomize build bin/deploy | $(KUBECTL) delete --ignore-not-found -f -

OVERLAY = NAMESPACE='$(NAMESPACE)' IMG='$(IMG)' AGENT_IMG='$(AGENT_IMG)' hack/overlay

# no_other_operator fails if the operator of the cluster is in another namespace. A second one would take its permissions and its
# webhook, and to undeploy NAMESPACE would delete its CRD.
define no_other_operator
installed=$$($(KUBECTL) get clusterrolebinding conclave-manager --ignore-not-found --output 'jsonpath={.subjects[0].namespace}'); \
if [ -n "$$installed" ] && [ "$$installed" != '$(NAMESPACE)' ]; then \
	echo "the operator of this cluster is in namespace $$installed: set NAMESPACE=$$installed, or run this first: make undeploy NAMESPACE=$$installed" >&2; exit 1; \
fi
endef

# check_uninstall fails if pods could not be deleted without the operator. It asks the cluster of KUBECTL, which may select a context.
define check_uninstall
mkdir -p bin; $(STATIC) -o bin/ ./cmd/manager; \
KUBECONFIG=<($(KUBECTL) config view --raw --flatten --minify) bin/manager check-uninstall
endef

# keep_owner runs a command and changes the owner of bin/ and dist/ to the user who called sudo.
define keep_owner
status=0; $(1) || status=$$?; \
for made in bin dist; do \
	if [ -n "$${SUDO_UID:-}" ] && [ -e $$made ]; then chown -R "$$SUDO_UID:$${SUDO_GID:-}" $$made; fi; \
done; \
exit $$status
endef

# in_each_module runs a command in each module with Go packages. It fails at the end if the command failed in a module.
define in_each_module
failed=; \
for module in $(MODULES); do \
	if packages=$$($(GO) -C $$module list ./... 2>/dev/null) && [ -z "$$packages" ]; then \
		echo "$$module: no Go packages"; continue; \
	fi; \
	(cd $$module && $(1)) || failed="$$failed $$module"; \
done; \
if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef
