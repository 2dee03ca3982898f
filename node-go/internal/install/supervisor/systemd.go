package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	bus "github.com/godbus/dbus/v5"

	"rollbox.dev/node/internal/containerd"
)

// jobsIn is how long systemd may take for one job: as long as its defaults give a service to stop and to start.
const jobsIn = 3 * time.Minute

// Systemd are units of systemd, which is spoken to over the node's message bus.
type Systemd struct {
	// Bus is the socket of the message bus.
	Bus string
	// Units are the names of units that are not called as their services are.
	Units map[string]string
	// StartsIn is how long a service may take until it answers.
	StartsIn time.Duration
}

func (s *Systemd) unit(service Service) string {
	if name := s.Units[service.Name]; name != "" {
		return name
	}
	return service.Name + ".service"
}

// Restart waits for systemd's own job, and then for the socket.
func (s *Systemd) Restart(ctx context.Context, service Service) error {
	return s.with(ctx, func(systemd *dbus.Conn) error { return s.restart(ctx, systemd, service) })
}

// Provide enables the unit and starts it anew.
func (s *Systemd) Provide(ctx context.Context, service Service) error {
	return s.with(ctx, func(systemd *dbus.Conn) error {
		if err := systemd.ReloadContext(ctx); err != nil {
			return fmt.Errorf("daemon-reload: %w", err)
		}
		if _, _, err := systemd.EnableUnitFilesContext(ctx, []string{s.unit(service)}, false, false); err != nil {
			return fmt.Errorf("enable %s: %w", s.unit(service), err)
		}
		return s.restart(ctx, systemd, service)
	})
}

// Withdraw stops the unit and disables it; its file may go then.
func (s *Systemd) Withdraw(ctx context.Context, service Service) error {
	return s.with(ctx, func(systemd *dbus.Conn) error {
		// Whatever its state: one that is about to be started again runs a moment later.
		if err := job(ctx, "stop", s.unit(service), systemd.StopUnitContext); err != nil && !isMissing(err) {
			return err
		}
		if _, err := systemd.DisableUnitFilesContext(ctx, []string{s.unit(service)}, false); err != nil {
			return fmt.Errorf("disable %s: %w", s.unit(service), err)
		}
		return nil
	})
}

// Running tells whether the unit is active, and is started whenever the node is.
func (s *Systemd) Running(ctx context.Context, service Service) (found bool, err error) {
	err = s.with(ctx, func(systemd *dbus.Conn) error {
		found, err = s.running(ctx, systemd, service)
		return err
	})
	return found, err
}

func (s *Systemd) running(ctx context.Context, systemd *dbus.Conn, service Service) (bool, error) {
	active, err := s.property(ctx, systemd, service, "ActiveState")
	if err != nil {
		return false, err
	}
	enabled, err := s.property(ctx, systemd, service, "UnitFileState")
	return active == "active" && enabled == "enabled", err
}

func (s *Systemd) property(ctx context.Context, systemd *dbus.Conn, service Service, name string) (string, error) {
	found, err := systemd.GetUnitPropertyContext(ctx, s.unit(service), name)
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", s.unit(service), err)
	}
	value, _ := found.Value.Value().(string)
	return value, nil
}

func (s *Systemd) restart(ctx context.Context, systemd *dbus.Conn, service Service) error {
	if err := job(ctx, "restart", s.unit(service), systemd.RestartUnitContext); err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, s.StartsIn)
	defer cancel()
	for {
		if _, err := containerd.Listener(starting, service.Socket); err == nil {
			return nil
		}
		select {
		case <-starting.Done():
			return fmt.Errorf("%s does not answer on %s within %v: %s", s.unit(service), service.Socket, s.StartsIn, s.state(ctx, systemd, service))
		case <-time.After(look):
		}
	}
}

// state is what systemd says of a unit, in words.
func (s *Systemd) state(ctx context.Context, systemd *dbus.Conn, service Service) string {
	ctx, cancel := context.WithTimeout(ctx, s.StartsIn)
	defer cancel()
	properties, err := systemd.GetAllPropertiesContext(ctx, s.unit(service))
	if err != nil {
		return fmt.Sprintf("systemd does not say why: %v", err)
	}
	return fmt.Sprintf("systemd says %v (%v), result %v, exit status %v", properties["ActiveState"], properties["SubState"], properties["Result"], properties["ExecMainStatus"])
}

func isMissing(err error) bool {
	var told bus.Error
	return errors.As(err, &told) && told.Name == "org.freedesktop.systemd1.NoSuchUnit"
}

// job waits until systemd has done one.
func job(ctx context.Context, verb, unit string, begin func(context.Context, string, string, chan<- string) (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, jobsIn)
	defer cancel()
	done := make(chan string, 1)
	if _, err := begin(ctx, unit, "replace", done); err != nil {
		return fmt.Errorf("%s %s: %w", verb, unit, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s %s: systemd says %s", verb, unit, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", verb, unit, ctx.Err())
	}
}

func (s *Systemd) with(ctx context.Context, use func(*dbus.Conn) error) error {
	systemd, err := dbus.NewConnection(func() (*bus.Conn, error) {
		connection, err := bus.Dial("unix:path="+s.Bus, bus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		if err := connection.Auth([]bus.Auth{bus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
			_ = connection.Close()
			return nil, err
		}
		if err := connection.Hello(); err != nil {
			_ = connection.Close()
			return nil, err
		}
		return connection, nil
	})
	if err != nil {
		return fmt.Errorf("systemd at %s: %w", s.Bus, err)
	}
	defer systemd.Close()
	// Without that nobody is told when a job is done.
	if err := systemd.Subscribe(); err != nil {
		return fmt.Errorf("systemd at %s: %w", s.Bus, err)
	}
	return use(systemd)
}
