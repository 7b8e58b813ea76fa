package host_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
)

func TestAccepted_TellsWhetherSomebodyTookTheConnection(t *testing.T) {
	o, err := host.New(host.Config{Targets: []host.Target{{Name: "it", Port: netip.MustParseAddrPort("127.0.0.1:1")}}}, host.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Release(o)
	for name, tt := range map[string]struct{ network, listen, dial string }{
		"IPv4":                   {"tcp4", "127.0.0.1:0", "127.0.0.1"},
		"IPv6":                   {"tcp6", "[::1]:0", "::1"},
		"IPv4 into a dual stack": {"tcp", "[::]:0", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen(tt.network, tt.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			c, err := net.Dial("tcp", net.JoinHostPort(tt.dial, port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			client, server := addr(t, c.LocalAddr()), addr(t, c.RemoteAddr())
			if accepted, known := o.Accepted("it", client, server); accepted || !known {
				t.Errorf("before accept: accepted %t, known %t; want false, true", accepted, known)
			}
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if accepted, known := o.Accepted("it", client, server); !accepted || !known {
				t.Errorf("after accept: accepted %t, known %t; want both", accepted, known)
			}
			s.Close() // it lives on in FIN_WAIT2, without an inode
			if accepted, known := o.Accepted("it", client, server); !accepted || !known {
				t.Errorf("after the server closed it: accepted %t, known %t; want both", accepted, known)
			}
			// The listener alone is no connection.
			client = netip.AddrPortFrom(client.Addr(), 1)
			if accepted, known := o.Accepted("it", client, server); accepted || known {
				t.Errorf("a connection that is not there: accepted %t, known %t; want neither", accepted, known)
			}
			if _, known := o.Accepted("another", client, server); known {
				t.Error("known for a target that is not watched")
			}
		})
	}
}

// TestAccepted_AResetConnectionIsUnknown: a listener that closes resets what
// waits in its queue.
func TestAccepted_AResetConnectionIsUnknown(t *testing.T) {
	o, err := host.New(host.Config{Targets: []host.Target{{Name: "it", Port: netip.MustParseAddrPort("127.0.0.1:1")}}}, host.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Release(o)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l.Close()
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	c.Read(make([]byte, 1)) // ends by the reset
	if accepted, known := o.Accepted("it", addr(t, c.LocalAddr()), addr(t, c.RemoteAddr())); accepted || known {
		t.Errorf("accepted %t, known %t; want neither", accepted, known)
	}
}

func addr(t *testing.T, a net.Addr) netip.AddrPort {
	t.Helper()
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func BenchmarkAccepted(b *testing.B) {
	o, err := host.New(host.Config{Targets: []host.Target{{Name: "it", Port: netip.MustParseAddrPort("127.0.0.1:1")}}}, host.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	defer host.Release(o)
	at := netip.MustParseAddrPort("127.0.0.1:1")
	for b.Loop() {
		o.Accepted("it", at, at)
	}
}
