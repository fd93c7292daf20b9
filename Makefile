# Everything a developer needs, with nothing to install but Go, a C compiler, git and make.
# `make` alone lists the targets; CONTRIBUTING.md tells how they are used.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
KUBECTL ?= kubectl
DOCKER ?= docker

# Each module is built and tested as its own go.mod says: in a workspace, one module's dependencies would change
# another's, and what was tested here wouldn't be what users get.
export GOWORK := off

MODULE := github.com/conclave-dev/conclave
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)

# The commands that become images, and their tags by the name that `make image`, `make docker-build` and `make deploy` agree on.
COMMANDS ?= manager agent
IMG ?= conclave/manager:$(VERSION)
AGENT_IMG ?= conclave/agent:$(VERSION)
# Where deploy and build-installer put the operator: a namespace of its own. As undeploy deletes it, it isn't taken from the environment.
NAMESPACE := conclave-system
PLATFORM ?= linux/$(shell $(GO) env GOARCH)

# Modules with code of ours: each is linted and tested. Those that only pin a tool aren't listed.
MODULES := $(patsubst %/go.mod,%,$(wildcard ./go.mod hack/tools/golangci/go.mod hack/image/go.mod test/alerts/go.mod hack/cluster/go.mod))

TOOL := hack/tools/tool
LINT := $(CURDIR)/$(TOOL) golangci

# The throwaway cluster. Not `go run ./hack/cluster`: that takes the workspace, which is off here.
HACK_CLUSTER := $(GO) -C hack/cluster run .
NODES ?= 3
# Where the end-to-end tests run: hack is a throwaway cluster of their own, kind the cluster of the current kubeconfig.
CLUSTER ?= hack

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "; printf "Usage: make TARGET [VARIABLE=value]...\n"} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ Development

.PHONY: manifests
manifests: ## Write the CRD, RBAC and webhook manifests from the markers in the code.
	@$(TOOL) controller-gen rbac:roleName=conclave-manager crd paths=./... output:crd:artifacts:config=config/crd/bases

.PHONY: generate
generate: ## Write the DeepCopy methods of the API types, and their reference in docs/api.md.
	@$(TOOL) controller-gen object paths=./api/...
	@$(TOOL) crd-ref-docs --log-level ERROR --source-path api/v1 --output-path docs/api.md --renderer markdown \
		--config hack/tools/crd-ref-docs/config.yaml --templates-dir hack/tools/crd-ref-docs/templates

.PHONY: fmt
fmt: ## Format all Go code.
	@$(LINT) fmt

.PHONY: tidy
tidy: ## Tidy the go.mod of each module.
	@for module in $(MODULES); do $(GO) -C $$module mod tidy 2>&1 | { grep -v '^go: downloading' || true; }; done

.PHONY: vet
vet: ## Run go vet over all modules.
	@$(call in_each_module,$(GO) vet ./...)

.PHONY: lint
lint: lint-config ## Run the linters over all modules: style, bugs, and who may import whom.
	@$(call in_each_module,$(LINT) run --allow-parallel-runners ./...)

.PHONY: lint-fix
lint-fix: ## Run the linters and let them mend what they can.
	@$(call in_each_module,$(LINT) run --allow-parallel-runners --fix ./...)

.PHONY: lint-config
lint-config: ## Check the linters' configuration.
	@$(LINT) config verify

.PHONY: verify
verify: ## Generate, format, tidy, lint and check commit subjects; fail if that changes a file. CI runs this first.
	@hack/tools/commits
	@hack/tools/unchanged $(MAKE) generate manifests fmt tidy
	@$(MAKE) lint
	@echo "verify: everything is up to date"

.PHONY: vuln
vuln: ## Look for known vulnerabilities; needs the network, so it is not part of verify.
	@$(call in_each_module,$(CURDIR)/$(TOOL) govulncheck $(if $(VULNDB),-db $(VULNDB)) ./...)

##@ Tests

# The core and the simulator have their own long tests and no shared memory between goroutines (the linter sees to the
# core; of the simulator the short tests run under the race detector too). Everything else is tested with it.
PURE = ^$(MODULE)/internal/(election|sim)(/|$$)
# These start agents as processes: one after the other. What those are built from, the tests look at, so that Go knows when
# they must run again.
PROCESSES = ^$(MODULE)/(internal/agent/pod|internal/testing/agentcluster|test/agents|hack/bench-agent|hack/bench-operator|examples)$$
GO_TEST = $(GO) test -timeout 30m

.PHONY: test
test: ## Run all tests. CI runs this second.
	@$(call as_the_caller,$(MAKE) test-root test-modules test-clusters)

.PHONY: test-root
test-root: ## Run the tests of the operator, the agent and the core.
	@packages=$$($(GO) list ./...) || exit 1; \
	if [ -z "$$packages" ]; then echo "no Go packages in the root module yet: nothing to test"; exit 0; fi; \
	pure=$$(grep -E '$(PURE)' <<<"$$packages" || true); \
	agents=$$(grep -E '$(PROCESSES)' <<<"$$packages" || true); \
	concurrent=$$(grep -vE '$(PURE)|$(PROCESSES)' <<<"$$packages" || true); \
	simulator=$$(grep -E '^$(MODULE)/internal/sim(/|$$)' <<<"$$packages" || true); \
	$(assets); \
	if [ -n "$$pure" ]; then $(GO_TEST) $$pure; fi; \
	if [ -n "$$simulator" ]; then $(GO_TEST) -race -short $$simulator; fi; \
	if [ -n "$$concurrent" ]; then $(GO_TEST) -race $$concurrent; fi; \
	if [ "$$(id -u)" != 0 ]; then echo "not root: skipping the test that fills a disk"; fi; \
	$(partitions_possible) || echo "skipping the tests in which agents lose each other's packets: $$lacks"; \
	if [ -n "$$agents" ]; then $(GO_TEST) -race -p 1 $$agents; fi

# Never from the cache (-count 1): they also read files outside their own module, and Go doesn't look at those again. Built as
# the tools are, so that the linter isn't compiled twice.
.PHONY: test-modules
test-modules: ## Run the tests of the linter's rules, of the images and of the alerts.
	@if [ $$(id -u) != 0 ]; then \
		if [ "$${CI:-}" = true ]; then echo "CI must not skip tests, and some need root: run it as root" >&2; exit 1; fi; \
		echo "not root: skipping the tests that run a program in an empty root folder"; \
	fi
	@for module in $(filter-out . hack/cluster,$(MODULES)); do (cd $$module && CGO_ENABLED=0 $(GO_TEST) -trimpath -count 1 ./...); done

# One after the other: beside another cluster, agents are silent for so long now and then that others elect.
.PHONY: test-clusters
test-clusters: ## Run the tests that need a cluster: those of the throwaway cluster, and the end-to-end tests.
	@$(MAKE) test-cluster
	@$(MAKE) test-e2e-if-possible

# Built first, so that the limit of go test doesn't have to cover that.
.PHONY: test-cluster
test-cluster: ## Run the tests of the throwaway cluster.
	@if $(cluster_possible); then $(MAKE) cluster-build; else echo "skipping the tests that start a cluster: $$lacks"; fi
	@cd hack/cluster && $(GO_TEST) -count 1 ./...

.PHONY: test-e2e
test-e2e: ## Run our images in a cluster: CLUSTER=hack starts one of its own, CLUSTER=kind takes the current one.
	@CONCLAVE_E2E=$(CLUSTER) $(GO_TEST) -count 1 ./test/e2e

.PHONY: test-e2e-if-possible
test-e2e-if-possible:
	@if $(cluster_possible); then $(MAKE) test-e2e CLUSTER=hack; else echo "skipping the end-to-end tests: $$lacks"; fi

.PHONY: test-lint
test-lint: ## Prove that each lint rule refuses what it should.
	@CGO_ENABLED=0 $(GO) -C hack/tools/golangci test -trimpath -count 1 ./...

.PHONY: bench
bench: ## Run the benchmarks; BENCH=regexp chooses, COUNT=n repeats, BENCHTIME=5s prolongs.
	@packages=$$($(GO) list ./...) || exit 1; \
	if [ -z "$$packages" ]; then echo "no Go packages in the root module yet: nothing to measure"; exit 0; fi; \
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -count $(or $(COUNT),1) -benchtime $(or $(BENCHTIME),1s) -timeout 60m $$packages

SCHEDULES ?= 1000000
PROCESSES ?= 5
.PHONY: soak
soak: ## Run SCHEDULES random schedules of PROCESSES with all faults, over all elections and safety modes, from SEED on.
	@mkdir -p bin; $(STATIC) -o bin/ ./cmd/kubectl-conclave
	@for safety in Majority Strict Available; do \
		for algorithm in Bully StatusTable RingAllIDs RingChampion RingActiveList RingSkip; do \
			bin/kubectl-conclave simulate --algorithm $$algorithm --safety $$safety --faults all --processes $(PROCESSES) \
				--schedules $$(( ($(SCHEDULES) + 17) / 18 )) --seed $(or $(SEED),1); \
		done; \
	done

FAULTS ?= 100000
.PHONY: soak-agent
soak-agent: ## Run applications over real agents through FAULTS faults in each safe mode, from SEED; CONCLAVE_RACE=true looks for races.
	@$(GO) test -count 1 -timeout 0 -v -race -run TestRegistersAreLinearizable ./test/agents -faults $(FAULTS) $(if $(SEED),-seed $(SEED))

OUTAGE ?= 2m
REPLICAS ?= 50
IDLE ?= 5m
.PHONY: soak-operator
soak-operator: ## As root: run the operator's end-to-end tests with outages of OUTAGE, REPLICAS pods of a Deployment, and an idle phase of IDLE.
	@CONCLAVE_E2E=hack $(GO) test -count 1 -timeout 0 -v -run TestInCluster/operator ./test/e2e -outage $(OUTAGE) -replicas $(REPLICAS) -idle $(IDLE)

.PHONY: bench-agent
bench-agent: ## Measure real agents: kills of the coordinator, hand-overs, idle cost; ARGS="--agents 5 -o json" chooses.
	@mkdir -p bin; $(STATIC) -o bin/ ./hack/bench-agent
	@bin/bench-agent $(ARGS)

.PHONY: bench-operator
bench-operator: ## Measure the operator, and a Lease beside it; ARGS="--part scale --groups 100 -o json" chooses. A part takes root.
	@mkdir -p bin; $(STATIC) -o bin/ ./hack/bench-operator
	@bin/bench-operator $(ARGS)

##@ Build

STATIC = CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.version=$(VERSION)"

.PHONY: build
build: ## Build the commands into bin/.
	@commands=$$(ls -d cmd/*/ 2>/dev/null || true); \
	if [ -z "$$commands" ]; then echo "no cmd/ yet: nothing to build"; exit 0; fi; \
	mkdir -p bin; \
	for command in $$commands; do \
		name=$$(basename $$command); \
		case $$name in agent) name=conclave-agent;; esac; \
		$(STATIC) -o bin/$$name ./$$command; \
	done
	@install -m 755 cmd/kubectl-conclave/kubectl_complete-conclave bin/

.PHONY: demo
demo: ## Bring up a cluster, install the operator, and take the coordinator of a group away three times. As root.
	@$(call as_the_caller,$(MAKE) build && $(GO) run ./hack/demo)

.PHONY: demo-down
demo-down: ## Remove what make demo has left.
	@$(GO) run ./hack/demo -down

.PHONY: tour
tour: build ## Walk through elections in the simulator, then take the coordinator away from five real agents. No cluster.
	@$(call show,4 of 10 finds out that 10 is dead,--algorithm Bully --processes 10 --crashed 10 --initiators 4)
	@$(call show,the same with a status table,--algorithm StatusTable --processes 10 --crashed 10 --initiators 4)
	@$(call show,5 comes back and is the highest: every message,--algorithm StatusTable --processes 5 --recover 5 -o transcript)
	@$(call show,two of a ring start at once: a diagram for Mermaid,--algorithm RingSkip --processes 4 --crashed 4 --initiators 1$(comma)2 -o mermaid)
	@$(call show,what elections cost in groups of up to 20,compare --max 20)
	@$(call show,20000 schedules in which all goes wrong that can,--algorithm StatusTable --processes 5 --safety Majority --faults all --schedules 20000)
	@$(GO) run ./hack/demo-agents bin/conclave-agent

comma := ,
# show tells what a simulation is about and how it is called, and runs it.
show = echo; echo "\# $(1)"; echo "$$ kubectl conclave simulate $(2)"; bin/kubectl-conclave simulate $(2)

.PHONY: run
run: ## Run the manager on this machine, against the cluster of the current kubeconfig, where NAMESPACE must exist; ARGS="--flag" passes flags.
	@POD_NAMESPACE=$(NAMESPACE) AGENT_IMAGE=$(AGENT_IMG) $(GO) run ./cmd/manager $(ARGS)

.PHONY: image
image: ## Make the images of COMMANDS without Docker: dist/NAME.tar to load, dist/NAME.spdx.json beside it.
	@for name in $(COMMANDS); do \
		if [ ! -d cmd/$$name ]; then echo "no cmd/$$name yet: no image of it"; continue; fi; \
		case $$name in manager) tag=$(IMG);; agent) tag=$(AGENT_IMG);; *) tag=conclave/$$name:$(VERSION);; esac; \
		$(GO) -C hack/image run . -source $(CURDIR) -package ./cmd/$$name -version $(VERSION) -tag $$tag -platform $(PLATFORM) -output $(CURDIR)/dist; \
	done

.PHONY: image-example
image-example: ## Make the images of examples/kubernetes in the same way: dist/agent.tar and dist/go.tar.
	@$(MAKE) image COMMANDS=agent AGENT_IMG=conclave/agent:example
	@$(GO) -C hack/image run . -source $(CURDIR) -package ./examples/go -version $(VERSION) -tag conclave/example-go:example \
		-platform $(PLATFORM) -output $(CURDIR)/dist

.PHONY: docker-build
docker-build: ## Make the same images with Docker.
	@command -v $(DOCKER) >/dev/null || { echo "there is no $(DOCKER) here: make image makes the same images without it" >&2; exit 2; }
	@for name in manager agent; do \
		if [ ! -d cmd/$$name ]; then echo "no cmd/$$name yet: no image of it"; continue; fi; \
		case $$name in manager) tag=$(IMG);; agent) tag=$(AGENT_IMG);; esac; \
		$(DOCKER) build --platform $(PLATFORM) --target $$name --build-arg VERSION=$(VERSION) --tag $$tag .; \
	done

.PHONY: docker-push
docker-push: ## Push the images that docker-build made.
	@for tag in $(IMG) $(AGENT_IMG); do $(DOCKER) push $$tag; done

INSTALLER ?= dist/install.yaml
.PHONY: build-installer
build-installer: ## Write INSTALLER: all that one kubectl apply needs.
	@$(overlay)
	@mkdir -p $(dir $(INSTALLER))
	@$(TOOL) kustomize build bin/deploy >$(INSTALLER)
	@echo "$(INSTALLER)"

.PHONY: clean
clean: ## Remove what was built: bin/ (tools too) and dist/.
	@rm -rf bin dist

##@ A throwaway Kubernetes on this Linux machine, see docs/cluster.md

.PHONY: cluster-build
cluster-build: ## Build its programs, once for each version of them; the first time takes minutes.
	@$(HACK_CLUSTER) build

.PHONY: cluster-up
cluster-up: ## Start it, as root, with NODES=3; prints the KUBECONFIG to export.
	@$(HACK_CLUSTER) up --nodes $(NODES)

.PHONY: cluster-down
cluster-down: ## End it and remove all of it.
	@$(HACK_CLUSTER) down

.PHONY: envtest-assets
envtest-assets: ## Print the folder of its etcd, kube-apiserver and kubectl, for KUBEBUILDER_ASSETS.
	@$(HACK_CLUSTER) assets

##@ Deployment, to the cluster of the current kubeconfig

.PHONY: install
install: ## Install the CRDs.
	@$(MAKE) manifests
	@$(TOOL) kustomize build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: ## Remove the CRDs, and with them every ElectionGroup.
	@$(TOOL) kustomize build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: ## Deploy the manager into NAMESPACE, with IMG as its image, and AGENT_IMG as that of agents.
	@$(MAKE) manifests
	@$(overlay)
	@$(TOOL) kustomize build bin/deploy | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove the manager, and NAMESPACE.
	@$(overlay)
	@$(TOOL) kustomize build bin/deploy | $(KUBECTL) delete --ignore-not-found -f -

# An overlay in bin/ sets the namespace and the images, where kubebuilder's Makefile would edit config/manager and leave the tree dirty.
define overlay
rm -rf bin/deploy; mkdir -p bin/deploy; \
	printf '%s\n' 'namespace: $(NAMESPACE)' 'resources: [../../config/default]' 'patches:' '- patch: |-' \
		'    apiVersion: apps/v1' '    kind: Deployment' '    metadata: {name: conclave-manager, namespace: conclave-system}' \
		'    spec: {template: {spec: {containers: [{name: manager, image: "$(IMG)", env: [{name: AGENT_IMAGE, value: "$(AGENT_IMG)"}]}]}}}' \
		>bin/deploy/kustomization.yaml
endef

# as_the_caller runs a command, and gives what it has made to whoever called sudo, who otherwise couldn't write it any more.
define as_the_caller
status=0; $(1) || status=$$?; \
for made in bin dist; do \
	if [ -n "$${SUDO_UID:-}" ] && [ -e $$made ]; then chown -R "$$SUDO_UID:$${SUDO_GID:-}" $$made; fi; \
done; \
exit $$status
endef

# in_each_module runs a command in each module that has Go packages, and fails at the end if it failed in any.
define in_each_module
failed=; \
for module in $(MODULES); do \
	if packages=$$($(GO) -C $$module list ./... 2>/dev/null) && [ -z "$$packages" ]; then \
		echo "$$module: no Go packages yet"; continue; \
	fi; \
	(cd $$module && $(1)) || failed="$$failed $$module"; \
done; \
if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef

# cluster_possible succeeds if a cluster can run here. If not, it leaves why in $$lacks; in CI that is a failure.
define cluster_possible
if [ $$(id -u) != 0 ]; then lacks="not root"; else lacks=$$($(HACK_CLUSTER) check 2>&1 | sed -n 's/^cluster: //p'); fi; \
	if [ -n "$$lacks" ] && [ "$${CI:-}" = true ]; then echo "CI must not skip tests, and a cluster can't run here: $$lacks" >&2; exit 1; fi; \
	[ -z "$$lacks" ]
endef

# partitions_possible succeeds if agents can have a network of their own here that loses packets. If not, it leaves why in
# $$lacks. That is for the eye: the tests find out by themselves, and in CI they fail.
define partitions_possible
if ! command -v nft >/dev/null; then lacks="nft isn't in PATH (see hack/cluster/packages)"; \
	elif [ $$(id -u) != 0 ] && ! unshare --user --map-root-user --net true 2>/dev/null; then lacks="not root, and without user namespaces"; \
	else lacks=; fi; \
	[ -z "$$lacks" ]
endef

# The tests of the API and of the controllers need etcd and kube-apiserver: hack/cluster builds them and says where they are.
define assets
if [ -z "$${KUBEBUILDER_ASSETS:-}" ]; then \
	KUBEBUILDER_ASSETS=$$($(HACK_CLUSTER) assets); \
	export KUBEBUILDER_ASSETS; \
fi
endef
