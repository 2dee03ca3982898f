// Pages of package indexes with addresses of this cache, and under a date without what was published from then on.
// Runs in nginx (njs 0.7 or later). An upstream is asked for the form that has dates; what has none is left out then.
import crypto from 'crypto';

const CACHE = 'http://packages.rollbox.internal';
// Of who makes pages: both are at work; what was fetched for it has been removed for lack of room.
const BUSY = 429, GONE = 410;
const FIRST_PAUSE_MS = 10, LAST_PAUSE_MS = 200, LONGEST_WAIT_MS = 45000;
const JSON_FORM = 'application/vnd.pypi.simple.v1+json';

// [name of an index, address that its files may have upstream], longest addresses first.
const ORIGINS = (process.env.ROLLBOX_PACKAGES_INDEXES || '')
    .split(',').filter(Boolean)
    .map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)])
    .reduce((all, one) => all.concat([one, [one[0], 'https://' + one[0]]]), [])
    .sort((one, other) => other[1].length - one[1].length);

// Answers a request for a page: has the upstream's answer fetched, which is kept, and waits for its turn to be made.
async function page(r) {
    const until = Date.now() + LONGEST_WAIT_MS;
    let answer, told = { status: GONE }, pause = FIRST_PAUSE_MS;
    while (!answer || answer.status === BUSY || answer.status === GONE) {
        if (Date.now() > until) {
            r.return(503, 'other pages are being made\n');
            return;
        }
        if (answer) {
            await new Promise((done) => setTimeout(done, pause));
            pause = Math.min(pause * 2, LAST_PAUSE_MS);
        }
        if (!answer || answer.status === GONE) {
            told = await r.subrequest('/upstream', { method: 'HEAD' });
        }
        if (told.status !== 200) {
            r.headersOut['X-Rollbox-Cache'] = told.variables.upstream_cache_status;
            // Where a redirect leads is made an address of this cache on the way out (`redirected`).
            r.return(told.status, told.headersOut.Location || 'the index answered ' + told.status + '\n');
            return;
        }
        answer = await r.subrequest('/made', { method: 'GET' });
    }
    r.headersOut['Content-Type'] = answer.headersOut['Content-Type'];
    if (answer.status === 200) {
        r.headersOut['X-Rollbox-Cache'] = told.variables.upstream_cache_status;
    }
    r.return(answer.status, answer.responseBuffer);
}

// Writes a page anew, of what an upstream has answered.
async function made(r) {
    const index = r.variables.index;
    const told = await r.subrequest('/kept', { method: 'GET' });
    if (told.status !== 200) {
        r.return(GONE);
        return;
    }
    const type = told.headersOut['Content-Type'] || '';
    let whole;
    try {
        whole = written(type, told.responseText, r);
    } catch (error) {
        r.error('a page of ' + index + r.variables.raw + ' cannot be read: ' + error);
        r.return(502, 'the index answered with a page that cannot be read\n');
        return;
    }
    if (whole === null) {
        r.return(403, JSON.stringify({ detail: index + ' tells no dates of its files, so a policy with a date gets none' }));
        return;
    }
    r.headersOut['Content-Type'] = whole.type;
    r.return(200, whole.text);
}

// The page, by what the upstream says that it is; null: it has no dates, and some are asked for.
function written(type, text, r) {
    const until = r.variables.until;
    if (type.indexOf('json') === -1) {
        return until ? null : { type: type, text: rewritten(text, r) };
    }
    if (r.variables.index === 'registry.npmjs.org') {
        return { type: 'application/json', text: JSON.stringify(npm(JSON.parse(text), until)) };
    }
    return pypi(JSON.parse(text), until, r);
}

// A project of the Simple API (PEP 691 and 700), in the form that was asked for.
function pypi(project, until, r) {
    const upstream = r.variables.upstream + r.variables.raw;
    const files = project.files
        .filter((file) => !until || isBefore(file['upload-time'], until))
        .map((file) => Object.assign({}, file, { url: address(absolute(file.url, upstream), until) }))
        .filter((file) => file.url);
    if (r.variables.form === 'html') {
        return { type: 'text/html; charset=utf-8', text: html(project.name, files) };
    }
    const whole = Object.assign({}, project, { files: files });
    if (until) {
        // Which versions are left is told by the files: a list of all is one of API 1.1.
        delete whole.versions;
        whole.meta = Object.assign({}, whole.meta, { 'api-version': '1.0' });
    }
    return { type: JSON_FORM, text: JSON.stringify(whole) };
}

// The same as HTML (PEP 503, 592, 714).
function html(name, files) {
    const lines = files.map((file) => {
        const hash = Object.keys(file.hashes || {}).map((kind) => '#' + kind + '=' + file.hashes[kind])[0] || '';
        const metadata = file['core-metadata'];
        const attributes = [
            ['data-requires-python', file['requires-python']],
            ['data-yanked', file.yanked === true ? '' : file.yanked || undefined],
            ['data-core-metadata', metadata && (metadata.sha256 ? 'sha256=' + metadata.sha256 : 'true')],
        ].filter((pair) => pair[1] !== undefined && pair[1] !== null && pair[1] !== false)
            .map((pair) => ' ' + pair[0] + '="' + escaped(pair[1]) + '"');
        return '<a href="' + escaped(file.url + hash) + '"' + attributes.join('') + '>' + escaped(file.filename) + '</a><br>';
    });
    const head = '<meta name="pypi:repository-version" content="1.0"><title>' + escaped(name) + '</title>';
    return '<!DOCTYPE html>\n<html><head>' + head + '</head>\n<body>\n' + lines.join('\n') + '\n</body></html>\n';
}

// A page of an index that has HTML alone: its addresses, and nothing else of it.
function rewritten(text, r) {
    const upstream = r.variables.upstream + r.variables.raw;
    return text.replace(/(href=")([^"#]+)/g, (_, before, url) =>
        before + (escaped(address(absolute(unescaped(url), upstream), '')) || url));
}

// A package of the npm registry. `time` of its whole form has the dates of its versions.
function npm(doc, until) {
    const versions = {}, time = doc.time || {};
    Object.keys(doc.versions || {}).forEach((version) => {
        if (until && !isBefore(time[version], until)) {
            return;
        }
        const one = doc.versions[version], dist = one.dist || {};
        const url = address(dist.tarball || '', until);
        if (url) {
            versions[version] = Object.assign({}, one, { dist: Object.assign({}, dist, { tarball: url }) });
        }
    });
    if (!until) {
        return Object.assign({}, doc, { versions: versions });
    }
    const tags = doc['dist-tags'] || {}, left = {}, kept = {};
    Object.keys(tags).filter((tag) => versions[tags[tag]]).forEach((tag) => { left[tag] = tags[tag]; });
    left.latest = left.latest || latest(Object.keys(versions), time);
    Object.keys(versions).forEach((version) => { kept[version] = time[version]; });
    // Of the rest nothing is of that date: description and readme are those of now.
    return { name: doc.name, 'dist-tags': left.latest ? left : {}, versions: versions, time: kept };
}

// What was published last; one that is no pre-release, if there is any.
function latest(versions, time) {
    const whole = versions.filter((version) => version.indexOf('-') === -1);
    const among = whole.length ? whole : versions;
    return among.sort((one, other) => Date.parse(time[one]) - Date.parse(time[other])).pop();
}

// Where an index leads to, as an address of this cache if it is one of an index. It is never signed: that a file has a
// date is what pages say, so under a date one that is elsewhere now is not given.
function redirected(r) {
    const location = r.headersOut.Location;
    if (location) {
        r.headersOut.Location = address(absolute(location, r.variables.upstream + r.variables.raw), '');
    }
}

// Whether a moment is known and before another one.
function isBefore(moment, until) {
    const at = Date.parse(moment || '');
    return at === at && at < Date.parse(until);
}

// Where this cache has a file; under a date with a token that a page of this date has named it. Empty: it is no file of
// an index of this cache, and under a date there is no other way to it.
function address(url, until) {
    const found = ORIGINS.filter((one) => url.indexOf(one[1] + '/') === 0)[0];
    if (!found) {
        return until ? '' : url;
    }
    const path = url.slice(found[1].length);
    return CACHE + '/' + found[0] + (until ? '/~' + token(found[0], path, until) : '') + path;
}

// The path of a file that was asked for under a date, if a page of that date has named it; else empty.
function datedFile(r) {
    const asked = /^\/~([A-Za-z0-9_-]+)(\/[^?]+)$/.exec(r.variables.raw);
    if (!asked) {
        return '';
    }
    // The metadata of a wheel stands beside it (PEP 658).
    const file = asked[2].replace(/\.metadata$/, '');
    return same(asked[1], token(r.variables.index, file, r.variables.until)) ? asked[2] : '';
}

function token(index, path, until) {
    const said = crypto.createHmac('sha256', process.env.ROLLBOX_PACKAGES_KEY).update(until + ' ' + index + path);
    return said.digest('base64url');
}

// In a time that does not tell where they differ.
function same(one, other) {
    let differ = one.length ^ other.length;
    for (let at = 0; at < one.length; at++) {
        differ |= one.charCodeAt(at) ^ other.charCodeAt(at % other.length);
    }
    return differ === 0;
}

// An address of a page, which may be relative to it.
function absolute(url, base) {
    if (/^https?:\/\//.test(url)) {
        return url;
    }
    const origin = /^https?:\/\/[^/]+/.exec(base)[0];
    const path = url[0] === '/' ? url : base.slice(origin.length).replace(/[?#].*$/, '').replace(/[^/]*$/, '') + url;
    const kept = [];
    path.split('/').forEach((segment) => {
        if (segment === '..') {
            kept.pop();
        } else if (segment !== '.') {
            kept.push(segment);
        }
    });
    return origin + (kept[0] === '' ? '' : '/') + kept.join('/');
}

function escaped(text) {
    return String(text).replace(/&/g, '&amp;').replace(/"/g, '&quot;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}

function unescaped(text) {
    return text.replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&quot;/g, '"').replace(/&amp;/g, '&');
}

export default { page, made, datedFile, redirected };
