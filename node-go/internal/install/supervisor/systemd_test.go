package supervisor

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	bus "github.com/godbus/dbus/v5"
)

// systemd is one that is played: it answers on a message bus of its own, and notes what it is told.
type systemd struct {
	mutex  sync.Mutex
	told   []string
	active string
	result string
	jobs   int
	// missing: there are no units.
	missing bool
	signal  []net.Conn
}

func playSystemd(t *testing.T, active, result string) (*systemd, *Systemd) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bus")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	played := &systemd{active: active, result: result}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { played.serve(connection) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		played.mutex.Lock()
		for _, one := range played.signal {
			_ = one.Close()
		}
		played.mutex.Unlock()
		serving.Wait()
	})
	return played, &Systemd{Bus: socket, Units: map[string]string{"containerd": "k3s.service"}, StartsIn: 300 * time.Millisecond}
}

func (s *systemd) serve(connection net.Conn) {
	defer connection.Close()
	from := bufio.NewReader(connection)
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return
		}
		switch words := strings.Fields(strings.TrimPrefix(line, "\x00")); words[0] {
		case "AUTH":
			if len(words) == 1 {
				fmt.Fprint(connection, "REJECTED EXTERNAL\r\n")
			} else {
				fmt.Fprint(connection, "OK 1234deadbeef\r\n")
			}
		case "BEGIN":
			s.messages(connection, from)
			return
		default:
			fmt.Fprint(connection, "ERROR\r\n")
		}
	}
}

func (s *systemd) messages(connection net.Conn, from *bufio.Reader) {
	s.mutex.Lock()
	s.signal = append(s.signal, connection)
	s.mutex.Unlock()
	for {
		message, err := bus.DecodeMessage(from)
		if err != nil {
			return
		}
		s.mutex.Lock()
		body, after := s.answer(message)
		answer := reply(message, body)
		if member, _ := message.Headers[bus.FieldMember].Value().(string); s.missing && strings.HasSuffix(member, "Unit") {
			answer, after = reply(message, nil), nil
			answer.Type = bus.TypeError
			answer.Headers[bus.FieldErrorName] = bus.MakeVariant("org.freedesktop.systemd1.NoSuchUnit")
		}
		s.send(connection, answer)
		for _, one := range after {
			for _, to := range s.signal {
				s.send(to, one)
			}
		}
		s.mutex.Unlock()
	}
}

func (s *systemd) send(to net.Conn, message *bus.Message) {
	_ = message.EncodeTo(to, binary.LittleEndian)
}

func reply(to *bus.Message, body []any) *bus.Message {
	made := &bus.Message{Type: bus.TypeMethodReply, Headers: map[bus.HeaderField]bus.Variant{
		bus.FieldReplySerial: bus.MakeVariant(to.Serial()), bus.FieldSender: bus.MakeVariant("org.freedesktop.systemd1"),
	}, Body: body}
	if len(body) > 0 {
		made.Headers[bus.FieldSignature] = bus.MakeVariant(bus.SignatureOf(body...))
	}
	return made
}

func (s *systemd) answer(message *bus.Message) (body []any, after []*bus.Message) {
	member, _ := message.Headers[bus.FieldMember].Value().(string)
	switch member {
	case "Hello":
		return []any{":1.1"}, nil
	case "AddMatch", "Subscribe":
		return nil, nil
	case "Get":
		if message.Body[1] == "UnitFileState" {
			return []any{bus.MakeVariant("enabled")}, nil
		}
		return []any{bus.MakeVariant(s.active)}, nil
	case "GetAll":
		return []any{map[string]bus.Variant{"ActiveState": bus.MakeVariant(s.active)}}, nil
	}
	s.told = append(s.told, strings.TrimSpace(fmt.Sprint(member, " ", message.Body)))
	switch member {
	case "EnableUnitFiles":
		return []any{true, [][]any{}}, nil
	case "DisableUnitFiles":
		return []any{[][]any{}}, nil
	case "RestartUnit", "StopUnit":
		s.jobs++
		job := bus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", s.jobs))
		done := []any{uint32(s.jobs), job, message.Body[0], s.result}
		return []any{job}, []*bus.Message{{Type: bus.TypeSignal, Headers: map[bus.HeaderField]bus.Variant{
			bus.FieldPath: bus.MakeVariant(bus.ObjectPath("/org/freedesktop/systemd1")), bus.FieldMember: bus.MakeVariant("JobRemoved"),
			bus.FieldInterface: bus.MakeVariant("org.freedesktop.systemd1.Manager"), bus.FieldSignature: bus.MakeVariant(bus.SignatureOf(done...)),
			bus.FieldSender: bus.MakeVariant("org.freedesktop.systemd1"),
		}, Body: done}}
	}
	return nil, nil
}

// listening is a service that answers.
func listening(t *testing.T, name string) Service {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return Service{name, socket}
}

func TestSystemdIsToldWhatToDo(t *testing.T) {
	for _, one := range []struct {
		name string
		call func(*Systemd, Service) error
		told []string
	}{
		{"containerd", func(s *Systemd, v Service) error { return s.Restart(t.Context(), v) }, []string{"RestartUnit [k3s.service replace]"}},
		{"snapshotter", func(s *Systemd, v Service) error { return s.Provide(t.Context(), v) },
			[]string{"Reload []", "EnableUnitFiles [[snapshotter.service] false false]", "RestartUnit [snapshotter.service replace]"}},
		{"snapshotter", func(s *Systemd, v Service) error { return s.Withdraw(t.Context(), v) },
			[]string{"StopUnit [snapshotter.service replace]", "DisableUnitFiles [[snapshotter.service] false]"}},
	} {
		played, kept := playSystemd(t, "active", "done")
		if err := one.call(kept, listening(t, one.name)); err != nil {
			t.Fatalf("%s: %v", one.told, err)
		}
		if !slices.Equal(played.told, one.told) {
			t.Errorf("it was told %q, not %q", played.told, one.told)
		}
	}
}

func TestAUnitThatIsNotThereIsWithdrawn(t *testing.T) {
	played, kept := playSystemd(t, "inactive", "done")
	played.missing = true
	service := listening(t, "snapshotter")
	if running, err := kept.Running(t.Context(), service); running || err != nil {
		t.Errorf("%v, %v", running, err)
	}
	if err := kept.Withdraw(t.Context(), service); err != nil {
		t.Error(err)
	}
	if err := kept.Restart(t.Context(), service); err == nil {
		t.Error("it was started anew")
	}
}

func TestAJobThatFailsIsAFailure(t *testing.T) {
	_, kept := playSystemd(t, "active", "failed")
	if err := kept.Restart(t.Context(), listening(t, "containerd")); err == nil || !strings.Contains(err.Error(), "systemd says failed") {
		t.Errorf("%v", err)
	}
}

func TestAServiceThatDoesNotAnswerIsAFailure(t *testing.T) {
	_, kept := playSystemd(t, "active", "done")
	service := Service{"containerd", filepath.Join(t.TempDir(), "none")}
	if err := kept.Restart(t.Context(), service); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
}

func TestANodeWithoutSystemdIsAFailure(t *testing.T) {
	kept := &Systemd{Bus: filepath.Join(t.TempDir(), "none")}
	if _, err := kept.Running(t.Context(), Service{Name: "containerd"}); err == nil {
		t.Error("it runs")
	}
}
