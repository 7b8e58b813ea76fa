# What one can do here. Everything CI runs, a person can run with one target.

.DEFAULT_GOAL := help

# Shipped binaries have no C in them. One setting for build, vet and test also
# means one build cache; only the race detector needs its own.
export CGO_ENABLED = 0

GO      ?= go
TOOLS   := .ci/tools
BIN     := bin

## help: list the targets
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## build: both binaries into bin/, static
build:
	$(GO) build -o $(BIN)/ ./cmd/crosscheck ./cmd/crosscheck-vantage

## demo: the story in the terminal
demo:
	$(GO) run ./cmd/crosscheck demo

## test: the tests, as a bare machine can run them
test:
	$(GO) test ./...

## race: the tests with the race detector, in random order
race:
	CGO_ENABLED=1 $(GO) test -race -shuffle=on ./...

## lint: gofmt, vet, staticcheck
lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./cmd/crosscheck-vantage
	cd $(TOOLS) && $(GO) build -o ../../$(BIN)/staticcheck honnef.co/go/tools/cmd/staticcheck
	$(BIN)/staticcheck ./...

## demo-faults: every demo fault in both listener modes, once, through the whole program
demo-faults: build
	$(GO) run ./cmd/bench -once

## faults: the fault matrix, real servers broken and only seemingly so (needs root; FAULTS="-list" and other flags)
faults:
	$(GO) build -o $(BIN)/ ./cmd/faults
	$(BIN)/faults $(FAULTS)

## bench: the numbers of the READMEs, as medians and worst of repeated runs
bench: build
	$(GO) run ./cmd/bench

## ci: what CI runs after installing its packages
ci: lint race demo-faults

.PHONY: help build demo test race lint demo-faults faults bench ci
