// A browser doesn't send the cookie with a link from another site. So the form may be shown to
// somebody who has a session.
const session = await (await fetch("session")).json();
if (session.user) location.replace(`./${location.hash}`);
// After the login, show what the link has named.
document.getElementById("login").action = `login${location.hash}`;
