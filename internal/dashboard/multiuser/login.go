package multiuser

import (
	"embed"
	"errors"
	"html/template"
	"net/http"
	"strings"
)

// cookieName has a prefix with which browsers accept the cookie only from this host, and
// only by TLS.
const cookieName = "__Host-conclave"

// bodyMax is the maximum size of the login form.
const bodyMax = 16 << 10

//go:embed assets
var assets embed.FS

var loginPage = template.Must(template.ParseFS(assets, "assets/login.html"))

// loginData is shown by the page.
type loginData struct {
	// Audience is that of the tokens, or "" for that of the API server.
	Audience string
	Error    string
}

func (s *Server) showLogin(w http.ResponseWriter, _ *http.Request) {
	s.writeLogin(w, http.StatusOK, "")
}

func (s *Server) writeLogin(w http.ResponseWriter, status int, message string) {
	data := loginData{Error: message}
	if len(s.Audiences) > 0 {
		data.Audience = s.Audiences[0]
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = loginPage.Execute(w, data) // The client is gone.
}

func serveLoginScript(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, assets, "assets/login.js")
}

// login begins a session. The token is in the body of the request, which no log contains.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimSpace(r.PostFormValue("token"))
	if token == "" {
		s.writeLogin(w, http.StatusBadRequest, "Enter a token.")
		return
	}
	u, err := s.authenticate(r, token, false)
	switch {
	case errors.Is(err, errRefused):
		s.Log.Info("refused token", "client", r.RemoteAddr)
		s.writeLogin(w, http.StatusUnauthorized, "The API server doesn't accept this token. It may have expired, or be for another audience.")
	case errors.Is(err, errTooOften):
		s.writeLogin(w, http.StatusTooManyRequests, "Too many unknown tokens were tried. Retry in a few seconds.")
	case err != nil:
		s.Log.Warn("cannot ask the API server", "error", err)
		s.writeLogin(w, http.StatusServiceUnavailable, "The API server does not respond. Retry later.")
	default:
		s.Log.Info("started session", "user", u.Username, "client", r.RemoteAddr)
		setCookie(w, s.sessions.create(u.Username, token), 0)
		http.Redirect(w, r, "./", http.StatusSeeOther)
	}
}

// logout ends the session and its streams.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		if found := s.sessions.use(cookie.Value); found != nil {
			s.sessions.delete(found)
			s.Log.Info("ended session", "user", found.username, "client", r.RemoteAddr)
		}
	}
	setCookie(w, "", -1)
	http.Redirect(w, r, "login", http.StatusSeeOther)
}

// setCookie sets the cookie until the browser ends, or deletes it if age is negative.
func setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}
