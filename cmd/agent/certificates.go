package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	oneDay = 24 * time.Hour
	// caDays outlives many certificates; maxDays is what a certificate can
	// hope for under it.
	caDays  = 3650
	maxDays = 3650
)

// request is what certificates are wanted for.
type certificateRequest struct {
	groups, members []string
	domain, out     string
	days            int
}

func newCertificates() *cobra.Command {
	var r certificateRequest
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Make keys and certificates for the members of groups",
		Long: `Make keys and certificates for the members of groups.

The folder gets MEMBER.pem and MEMBER-key.pem for each member, and the authority
that signs them: ca.pem, which every agent needs, and ca-key.pem, which none
does. An authority that is there already is used again, and certificates that
are there already are replaced: running agents go over to them by themselves.`,
		Example: `  conclave-agent certificates --group ledger --member a --member b --member c --out certs`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.check(); err != nil {
				return err
			}
			return r.make(cmd)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&r.groups, "group", nil, "a group that the members are in; can be repeated")
	flags.StringSliceVar(&r.members, "member", nil, "a member; can be repeated")
	flags.StringVar(&r.out, "out", "", "the folder for the files")
	flags.StringVar(&r.domain, "domain", "default", "the domain of the configuration")
	flags.IntVar(&r.days, "days", 365, "how long the certificates are valid")
	return cmd
}

func (r *certificateRequest) check() error {
	switch {
	case len(r.groups) == 0:
		return command.UsageErrorf("--group is missing: name a group, such as --group ledger")
	case len(r.members) == 0:
		return command.UsageErrorf("--member is missing: name the members, such as --member a --member b")
	case r.out == "":
		return command.UsageErrorf("--out is missing: name a folder for the files, such as --out certs")
	case r.days < 1 || r.days > maxDays:
		return command.UsageErrorf("--days must be from 1 to %d, not %d", maxDays, r.days)
	}
	if err := config.CheckGroupName(r.domain); err != nil {
		return command.UsageErrorf("--domain %s", err)
	}
	seen := map[string]bool{}
	for _, group := range r.groups {
		if err := config.CheckGroupName(group); err != nil {
			return command.UsageErrorf("--group %s", err)
		}
		if seen[group] {
			return command.UsageErrorf("--group %s is there twice", group)
		}
		seen[group] = true
	}
	files := map[string]string{"ca.pem": "the authority", "ca-key.pem": "the authority"}
	for _, member := range r.members {
		if err := config.CheckMemberName(member); err != nil {
			return command.UsageErrorf("--member %s", err)
		}
		for _, file := range []string{member + ".pem", member + "-key.pem"} {
			if other, ok := files[file]; ok {
				return command.UsageErrorf("--member %s and %s would both be in %s: make them in folders of their own", member, other, file)
			}
			files[file] = "member " + member
		}
	}
	return nil
}

func (r *certificateRequest) make(cmd *cobra.Command) error {
	if err := os.MkdirAll(r.out, 0o700); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	authority, fresh, err := r.loadOrCreateCA()
	if err != nil {
		return err
	}
	state := "used again"
	if fresh {
		state = "new"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: the authority, %s, until %s\n", r.path("ca.pem"), state, authority.NotAfter().Format(time.DateOnly))
	for _, member := range r.members {
		var names identity.Names
		for _, group := range r.groups {
			names = append(names, identity.Name{Domain: r.domain, Group: group, Member: member})
		}
		valid := time.Duration(r.days) * oneDay
		pair, err := authority.Issue(names, valid)
		if err != nil {
			return err
		}
		if err := r.write(member, pair); err != nil {
			return err
		}
		until := time.Now().Add(valid)
		if last := authority.NotAfter(); until.After(last) {
			until = last
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, until %s\n", r.path(member+".pem"), names, until.Format(time.DateOnly))
	}
	return nil
}

func (r *certificateRequest) path(name string) string { return filepath.Join(r.out, name) }

// authority is the one in the folder, or a new one. Half of one is a mistake
// that a new one would make worse: agents rely on the certificate that is there.
func (r *certificateRequest) loadOrCreateCA() (*identity.CA, bool, error) {
	cert, key := r.path("ca.pem"), r.path("ca-key.pem")
	hasCert, err := exists(cert)
	if err != nil {
		return nil, false, err
	}
	hasKey, err := exists(key)
	if err != nil {
		return nil, false, err
	}
	switch {
	case hasCert && hasKey:
		authority, err := identity.LoadCA(cert, key)
		return authority, false, err
	case hasCert:
		return nil, false, fmt.Errorf("%s is there but %s isn't: put the key beside it, or choose another folder", cert, key)
	case hasKey:
		return nil, false, fmt.Errorf("%s is there but %s isn't: put the certificate beside it, or choose another folder", key, cert)
	}
	authority, pair, err := identity.NewCA("Conclave authority of "+r.domain, caDays*oneDay)
	if err != nil {
		return nil, false, err
	}
	return authority, true, r.write("ca", pair)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write replaces the files of a pair. Between the two, agents stay with the
// former pair.
func (r *certificateRequest) write(name string, pair identity.Pair) error {
	if err := replace(r.path(name+"-key.pem"), pair.Key, 0o600); err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	if err := replace(r.path(name+".pem"), pair.Cert, 0o644); err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	return nil
}

// replace leaves no half a file, and no key that was readable for a moment.
func replace(path string, data []byte, mode fs.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
