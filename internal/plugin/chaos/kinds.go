package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
)

// byPod is the value of --machines for privileged pods.
const byPod = "pod"

// stopTimeout limits the time to delete the pods of --machines pod.
const stopTimeout = 30 * time.Second

// parseMachines checks the flags that concern the machines.
func (o *options) parseMachines() error {
	if o.machines == byPod {
		return nil
	}
	if o.machinesNamespace != "" || o.machinesImage != "" {
		return command.UsageErrorf("--machines-namespace and --machines-image need --machines %s", byPod)
	}
	if o.machines == "" {
		return nil
	}
	if _, err := live.ParseMachines(o.machines); err != nil {
		return command.UsageErrorf("--machines %s", err)
	}
	return nil
}

// openMachines returns what controls the machines, or nil.
func (o *options) openMachines(run *live.Run, config *rest.Config, namespace string) (live.Machines, error) {
	switch o.machines {
	case "":
		return nil, nil
	case byPod:
		return &live.Pods{
			Client: run.Client, Attach: live.AttachBy(config), Namespace: cmp.Or(o.machinesNamespace, namespace), Image: o.machinesImage,
			Limit: o.timeout + time.Minute, // Until then, the run undoes the fault.
		}, nil
	}
	return live.ParseMachines(o.machines)
}

// chooseKinds sets the kinds of faults. If the user has chosen some, all of them must be possible. Otherwise, it reports those
// that aren't.
func chooseKinds(ctx context.Context, run *live.Run, chosen []chaos.Kind) (notPossible map[string]string, err error) {
	run.Kinds, notPossible = chosen, map[string]string{}
	if len(chosen) == 0 {
		_, ofGroup := run.Subject.(*live.Group)
		run.Kinds = slices.DeleteFunc(chaos.Kinds(), func(k chaos.Kind) bool { return k.OfGroup && !ofGroup })
	}
	return notPossible, keepPossible(ctx, run, len(chosen) > 0, notPossible)
}

// keepPossible removes the kinds that aren't possible. If they are required, it returns an error.
func keepPossible(ctx context.Context, run *live.Run, required bool, notPossible map[string]string) error {
	candidates := run.Kinds
	run.Kinds = nil
	for _, kind := range candidates {
		reason, err := run.NotPossible(ctx, kind)
		switch {
		case err != nil:
			return clusteraccess.RequestError(err)
		case reason == "":
			run.Kinds = append(run.Kinds, kind)
		case required:
			return fmt.Errorf("faults of kind %s aren't possible: %s", kind.Name, reason)
		default:
			notPossible[kind.Name] = reason
			run.Printf("not possible: %s: %s", kind.Name, reason)
		}
	}
	if len(run.Kinds) == 0 {
		return errors.New("no kind of fault is possible: see the reasons above")
	}
	return nil
}

func needsMachines(kinds []chaos.Kind) bool {
	return slices.ContainsFunc(kinds, func(k chaos.Kind) bool { return k.Access == chaos.ByMachine })
}

// startMachines makes the machines ready, and removes the kinds that then turn out not to be possible.
func startMachines(ctx context.Context, run *live.Run, required bool, notPossible map[string]string) error {
	if !needsMachines(run.Kinds) {
		return nil
	}
	starting, cancel := context.WithTimeout(ctx, run.Timeout)
	defer cancel()
	err := run.Machines.Start(starting, run.Subject)
	switch {
	case ctx.Err() != nil:
		return command.ErrInterrupted
	case err != nil:
		return clusteraccess.RequestError(err)
	}
	return keepPossible(ctx, run, required, notPossible)
}

// stopMachines ends what startMachines has started, also if the run was interrupted.
func stopMachines(ctx context.Context, run *live.Run) {
	if run.Machines == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := run.Machines.Stop(ctx); err != nil {
		run.Printf("warning: %s", clusteraccess.RequestError(err))
	}
}
