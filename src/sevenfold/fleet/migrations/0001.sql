-- Memories, their history, mail and jobs of a fleet. Every table has a tenant, and every policy is forced:
-- who has no tenant, or names one that its login does not belong to, sees no row.
create schema if not exists sevenfold;
create table sevenfold.migration (number int primary key, at timestamptz not null default now());
create table sevenfold.tenant (
    id int generated always as identity primary key,
    name text unique not null);
create table sevenfold.tenant_login (
    tenant int not null references sevenfold.tenant,
    login name not null,
    primary key (login, tenant));
create table sevenfold.space (
    id bigint generated always as identity primary key,
    tenant int not null references sevenfold.tenant,
    kind text not null check (kind in ('user', 'project', 'team', 'agent')),
    slug text not null,
    unique (tenant, kind, slug),
    unique (tenant, id));
create table sevenfold.machine (
    tenant int not null references sevenfold.tenant,
    id text not null,
    name text not null,
    space bigint not null,
    seen_at timestamptz not null default now(),
    cursor_xid xid8 not null default '0',
    cursor_seq bigint not null default 0,
    foreign key (tenant, space) references sevenfold.space (tenant, id),
    primary key (tenant, id, space));
create table sevenfold.memory (
    tenant int not null,
    space bigint not null,
    name text not null,
    rev bigint not null,
    head bytea,
    changed timestamptz not null default now(),
    foreign key (tenant, space) references sevenfold.space (tenant, id),
    primary key (space, name)) with (fillfactor = 80);
create table sevenfold.revision (
    tenant int not null,
    space bigint not null,
    seq bigint generated always as identity,
    xid xid8 not null default pg_current_xact_id(),
    id text not null,
    name text not null,
    rev bigint not null,
    machine text not null,
    kind text not null,
    session text not null,
    reason text not null,
    summary text not null,
    at double precision not null,
    body bytea,
    foreign key (tenant, space) references sevenfold.space (tenant, id),
    primary key (space, xid, seq),
    unique (space, name, rev),
    unique (space, id, name));
create table sevenfold.job (
    id bigint generated always as identity primary key,
    tenant int not null,
    space bigint not null,
    xid xid8 not null default pg_current_xact_id(),
    kind text not null,
    state text not null default 'ready' check (state in ('ready', 'running', 'done', 'dead')),
    due timestamptz not null default now(),
    lease_until timestamptz,
    worker text,
    fence bigint not null default 0,
    tries int not null default 0,
    payload jsonb not null default '{}',
    result jsonb,
    problem text,
    cost double precision not null default 0,
    foreign key (tenant, space) references sevenfold.space (tenant, id));
create unique index one_job on sevenfold.job (space, kind) where state in ('ready', 'running') and payload = '{}';
create index job_ready on sevenfold.job (kind, due) where state = 'ready';
create index job_lease on sevenfold.job (lease_until) where state = 'running';
create table sevenfold.mail (
    tenant int not null,
    recipient text not null,
    id bigint generated always as identity,
    key text not null,
    sender text not null,
    body bytea not null,
    at timestamptz not null default now(),
    lease_until timestamptz,
    taken_at timestamptz,
    primary key (tenant, recipient, id),
    unique (tenant, key));

create function sevenfold.own_tenant() returns int language sql stable security definer
    set search_path = pg_catalog as
    $$select tenant from sevenfold.tenant_login
      where login = session_user and tenant = nullif(current_setting('sf.tenant', true), '')::int$$;

do $$
declare one text;
begin
    if not exists (select 1 from pg_roles where rolname = 'sevenfold_agent') then
        create role sevenfold_agent nologin nobypassrls;
    end if;
    execute format('grant sevenfold_agent to %I', session_user);
    foreach one in array array['space', 'machine', 'memory', 'revision', 'job', 'mail'] loop
        execute format('alter table sevenfold.%I enable row level security', one);
        execute format('alter table sevenfold.%I force row level security', one);
        execute format('create policy own on sevenfold.%I using (tenant = (select sevenfold.own_tenant()))'
                       ' with check (tenant = (select sevenfold.own_tenant()))', one);
        execute format('grant select, insert, update, delete on sevenfold.%I to sevenfold_agent', one);
    end loop;
end $$;
revoke update on sevenfold.revision from sevenfold_agent;
grant usage on schema sevenfold to sevenfold_agent;
grant select on sevenfold.migration to sevenfold_agent;
grant execute on function sevenfold.own_tenant() to sevenfold_agent;
alter table sevenfold.tenant enable row level security;
create policy own on sevenfold.tenant using (id in (select tenant from sevenfold.tenant_login where login = session_user));
alter table sevenfold.tenant_login enable row level security;
create policy own on sevenfold.tenant_login using (login = session_user);
grant select on sevenfold.tenant, sevenfold.tenant_login to sevenfold_agent;
